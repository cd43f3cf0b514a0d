//! `tallyring completions` and `tallyring man`: completion scripts and manual pages, made from the command line's own
//! definition.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;
use serde_json::json;

use crate::cli::Cli;
use crate::error::{Result, doing};
use crate::out::{self, say};

const NAME: &str = "tallyring";

/// Options of `completions`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring completions bash > /etc/bash_completion.d/tallyring
  tallyring completions zsh  > ~/.zfunc/_tallyring
  tallyring completions fish > ~/.config/fish/completions/tallyring.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: ShellName,
}

/// The shells with completions.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ShellName {
    Bash,
    Zsh,
    Fish,
}

/// Options of `man`.
#[derive(Args)]
#[command(after_help = "Example:\n  tallyring man /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Where the pages go; the directory is made if it is absent
    pub directory: PathBuf,
}

/// Prints a script for the shell.
pub(crate) fn completions(args: &CompletionsArgs, json: bool) -> Result<()> {
    let (shell, name) = match args.shell {
        ShellName::Bash => (Shell::Bash, "bash"),
        ShellName::Zsh => (Shell::Zsh, "zsh"),
        ShellName::Fish => (Shell::Fish, "fish"),
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    let script = String::from_utf8_lossy(&script);
    if json {
        say!("{}", json!({ "shell": name, "script": script }))
    } else {
        out::print(format_args!("{script}"))
    }
}

/// Writes a page for every command.
pub(crate) fn man(args: &ManArgs, json: bool) -> Result<()> {
    let directory = args.directory.as_path();
    let writing = || doing(format!("write to {}", directory.display()));
    fs::create_dir_all(directory).map_err(writing())?;
    // Hidden commands have no page.
    clap_mangen::generate_to(Cli::command(), directory).map_err(writing())?;
    let pages = fs::read_dir(directory).map_err(writing())?.count();
    if json {
        say!("{}", json!({ "directory": directory, "pages": pages }))
    } else {
        say!("{pages} pages are in {}", directory.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_line_by_line_in_a_help_fits_a_terminal() {
        fn check(command: &clap::Command) {
            let after = command.get_after_help().map(ToString::to_string);
            for line in after.unwrap_or_default().lines() {
                // The terminal wraps sentences; an indented line would break in its middle.
                let is_set = line.starts_with(' ');
                assert!(
                    !is_set || line.len() <= 80,
                    "{}: {line}",
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
