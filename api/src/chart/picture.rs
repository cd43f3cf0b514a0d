//! How a picture is drawn, whatever it shows: its width and its theme.

use std::str::FromStr;

use super::WIDTH;

/// The narrowest picture, in its own pixels: a phone.
pub const WIDTH_MIN: u32 = 280;

/// The widest one.
pub const WIDTH_MAX: u32 = 1_600;

/// How a picture is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its own pixels, [`WIDTH_MIN`] to [`WIDTH_MAX`]; it scales to the width of its place.
    pub width: u32,
    /// Its colours.
    pub theme: Theme,
    /// Whether days become final, so that what is not final is hatched.
    pub hatches: bool,
}

/// The colours of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// As the reader likes.
    Auto,
    /// Dark on light, for a page that is always light.
    Light,
    /// Light on dark.
    Dark,
}

impl Default for Picture {
    fn default() -> Self {
        Self {
            width: WIDTH,
            theme: Theme::Auto,
            hatches: false,
        }
    }
}

impl FromStr for Theme {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "auto" => Ok(Self::Auto),
            "light" => Ok(Self::Light),
            "dark" => Ok(Self::Dark),
            _ => Err(()),
        }
    }
}
