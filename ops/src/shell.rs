//! `tallyring completions` and `tallyring man`: what shells and readers of manuals need, made from the
//! command line itself.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::{Result, doing};

const NAME: &str = "tallyring";

/// Options of `completions`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring completions bash > /etc/bash_completion.d/tallyring
  tallyring completions zsh  > ~/.zfunc/_tallyring
  tallyring completions fish > ~/.config/fish/completions/tallyring.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: ShellName,
}

/// Shells that are served.
#[derive(Clone, Copy, ValueEnum)]
pub enum ShellName {
    Bash,
    Zsh,
    Fish,
}

/// Options of `man`.
#[derive(Args)]
#[command(after_help = "Example:\n  tallyring man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Where the pages go; made if it is not there
    pub directory: PathBuf,
}

/// Prints a script for the shell.
///
/// # Errors
/// When standard output cannot be written.
pub fn completions(args: &CompletionsArgs) -> Result<()> {
    let shell = match args.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    io::stdout()
        .write_all(&script)
        .map_err(doing("write to standard output"))
}

/// Writes a page for every command.
///
/// # Errors
/// When the directory cannot be written.
pub fn man(args: &ManArgs) -> Result<()> {
    let directory = args.directory.as_path();
    let writing = || doing(format!("write to {}", directory.display()));
    fs::create_dir_all(directory).map_err(writing())?;
    // Hidden commands have no page.
    clap_mangen::generate_to(Cli::command(), directory).map_err(writing())
}
