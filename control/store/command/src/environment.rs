//! The environment variables of etcd: `ETCD_` and the name of a flag in capitals, for each flag that is
//! not on the command line. An empty variable counts as none.

use std::env;

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, parser::ValueSource};

use crate::Flags;

const PREFIX: &str = "ETCD_";

/// Lets an argument take the value of its variable, if that is set.
pub(crate) fn variable_of(argument: Arg) -> Arg {
    let Some(variable) = argument.get_long().map(variable) else {
        return argument;
    };
    if !is_set(&variable) {
        return argument;
    }
    // The parser keeps the name for as long as the process runs; it is built once.
    let variable: &'static str = variable.leak();
    argument.env(variable)
}

/// The variable of a flag.
fn variable(flag: &str) -> String {
    format!("{PREFIX}{}", flag.replace('-', "_").to_uppercase())
}

fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// The variables of etcd that have no effect.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Those whose flag is on the command line.
    shadowed: Vec<String>,
}

impl Environment {
    /// The variables without an effect, each with the reason.
    pub fn ignored(&self) -> Vec<(String, &'static str)> {
        let store = Flags::augment_args(Command::new("store"));
        let flags = store.get_arguments().filter_map(Arg::get_long);
        let known: Vec<_> = flags.map(variable).collect();
        let set = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let unknown = set.filter(|name| name.starts_with(PREFIX) && !known.contains(name));
        let shadowed = self.shadowed.iter().cloned();
        let shadowed = shadowed.map(|name| (name, "the flag on the command line precedes it"));
        let unknown = unknown.map(|name| (name, "no flag has its name"));
        shadowed.chain(unknown).collect()
    }
}

impl Args for Environment {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for Environment {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut environment = Self::default();
        environment.update_from_arg_matches(matches)?;
        Ok(environment)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let given = matches
            .ids()
            .map(clap::Id::as_str)
            .filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
        let shadowed = given.map(variable).filter(|name| is_set(name));
        self.shadowed = shadowed.collect();
        Ok(())
    }
}
