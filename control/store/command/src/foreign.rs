//! Flags of etcd that the store does not carry. Those without a meaning here are accepted, so that a
//! manifest for etcd needs no change; those that ask for something the store does not do are refused.

mod table;

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, parser::ValueSource};

use table::{IGNORED, MEMBERS, OTHER_MEMBERS, REFUSED};

/// Flags with one reason or one way out.
struct Group {
    text: &'static str,
    /// Flags with a value.
    values: &'static [&'static str],
    /// Flags that are true without a value.
    switches: &'static [&'static str],
}

/// Values of a flag that ask for nothing: no flag is refused with one.
const NOTHING: [&str; 3] = ["", "false", "off"];

/// The flags of [`Foreign`] that were given, with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    given: Vec<(&'static str, String)>,
}

impl Foreign {
    /// The flags without an effect, each with the reason.
    pub fn ignored(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let given = self.given.iter();
        given.filter_map(|&(flag, _)| Some((flag, text(IGNORED, flag)?)))
    }

    /// The first flag that is refused, with the way out.
    pub fn refused(&self) -> Option<(&'static str, &'static str)> {
        self.given.iter().find_map(|(flag, value)| match *flag {
            MEMBERS => (members(value) > 1).then_some((MEMBERS, OTHER_MEMBERS)),
            _ if NOTHING.contains(&value.as_str()) => None,
            flag => Some((flag, text(REFUSED, flag)?)),
        })
    }
}

/// The number of members in the form `NAME=URL,NAME=URL`; one with several URLs is there repeatedly.
fn members(value: &str) -> usize {
    let names = value.split(',').filter_map(|member| member.split_once('='));
    let mut names: Vec<_> = names.map(|(name, _url)| name.trim()).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

fn text(groups: &[Group], flag: &str) -> Option<&'static str> {
    let of_flag = |group: &&Group| flags(group).any(|known| known == flag);
    groups.iter().find(of_flag).map(|group| group.text)
}

fn flags(group: &Group) -> impl Iterator<Item = &'static str> {
    group.values.iter().chain(group.switches).copied()
}

fn all() -> impl Iterator<Item = &'static Group> {
    IGNORED.iter().chain(REFUSED)
}

fn arguments(group: &Group) -> impl Iterator<Item = Arg> {
    let value = |&flag: &&'static str| Arg::new(flag).long(flag).hide(true);
    let switch = move |flag: &&'static str| {
        let argument = value(flag).num_args(0..=1).require_equals(true);
        argument.default_missing_value("true")
    };
    group
        .values
        .iter()
        .map(value)
        .chain(group.switches.iter().map(switch))
}

impl Args for Foreign {
    fn augment_args(command: Command) -> Command {
        command.args(all().flat_map(arguments))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Foreign {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut foreign = Self::default();
        foreign.update_from_arg_matches(matches)?;
        Ok(foreign)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let given = all().flat_map(flags).filter_map(|flag| {
            matches
                .value_source(flag)
                .filter(|source| *source != ValueSource::DefaultValue)?;
            let mut values = matches.get_many::<String>(flag)?;
            Some((flag, values.next_back()?.clone()))
        });
        self.given = given.collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn parse(arguments: &[&str]) -> Foreign {
        let command = Foreign::augment_args(Command::new("store"));
        let matches = command.get_matches_from([&["store"], arguments].concat());
        Foreign::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn a_flag_without_an_effect_has_a_reason() {
        let foreign = parse(&["--snapshot-count=10000", "--pre-vote", "--wal-dir", "/wal"]);
        let ignored: Vec<_> = foreign.ignored().map(|(flag, _)| flag).collect();
        assert_eq!(ignored, ["pre-vote", "snapshot-count", "wal-dir"]);
        assert!(foreign.ignored().all(|(_, reason)| !reason.is_empty()));
        assert_eq!(foreign.refused(), None);
    }

    #[test]
    fn what_the_store_does_not_do_is_refused_only_if_it_is_asked_for() {
        for flag in ["auto-tls", "discovery-srv", "config-file"] {
            let refused = parse(&[&format!("--{flag}=x")]).refused().unwrap();
            assert_eq!(refused.0, flag);
        }
        assert!(parse(&["--auto-tls"]).refused().is_some());
        let nothing = ["--auto-tls=false", "--discovery=", "--proxy=off"];
        assert_eq!(parse(&nothing).refused(), None);
    }

    #[test]
    fn a_cluster_of_several_members_is_refused() {
        let refused = |value| parse(&["--initial-cluster", value]).refused();
        assert_eq!(refused("a=http://a:2380"), None);
        assert_eq!(refused("a=http://a:2380,a=http://[::1]:2380"), None);
        let three = refused("a=http://a:2380,b=http://b:2380,c=http://c:2380");
        assert_eq!(three, Some((MEMBERS, OTHER_MEMBERS)));
    }

    #[test]
    fn each_flag_is_in_one_group() {
        let flags: Vec<_> = all().flat_map(flags).collect();
        let distinct: BTreeSet<_> = flags.iter().collect();
        assert_eq!(flags.len(), distinct.len());
    }
}
