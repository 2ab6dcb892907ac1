//! The denied prefixes by origin: commands, and the file. Pure.

use std::time::Duration;

use dormouse_agent_datapath::{Denied, WITHOUT_END};
use dormouse_agent_services::Prefix;

use super::file;
use super::message::Request;
use super::record::Record;

/// The present time, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Seconds since 1970: an end in the record survives a boot.
    pub wall_s: u64,
    /// CLOCK_BOOTTIME: an end in the kernel is checked for each packet.
    pub boot_ns: u64,
}

/// All denied prefixes.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// Added by commands.
    pub record: Record,
    /// The file's.
    pub file: Vec<Prefix>,
}

impl List {
    /// Applies a command to the record, which keeps no entry that has ended. The error says what is wrong with the command.
    pub fn apply(&mut self, request: &Request, now: Now) -> Result<(), String> {
        self.record
            .retain(|_, until_s| until_s.is_none_or(|until_s| now.wall_s < until_s));
        match request {
            Request::Add { prefixes, seconds } => {
                let until_s = seconds.map(|seconds| now.wall_s.saturating_add(seconds));
                for prefix in parsed(prefixes)? {
                    self.record.insert(prefix, until_s);
                }
            }
            Request::Remove { prefixes } => {
                for prefix in parsed(prefixes)? {
                    if self.record.remove(&prefix).is_none() {
                        return Err(self.unknown(&prefix));
                    }
                }
            }
        }
        Ok(())
    }

    /// Why a prefix cannot be removed.
    fn unknown(&self, prefix: &Prefix) -> String {
        if self.file.contains(prefix) {
            format!("{prefix} is denied by the file of --deny-file: remove its line")
        } else {
            format!("{prefix} is not denied; dormouse-agent deny list shows the prefixes")
        }
    }

    /// The entries for the kernel.
    pub fn denied(&self, now: Now) -> impl Iterator<Item = Denied> {
        let file = self.file.iter().map(|prefix| Denied {
            prefix: *prefix,
            until_ns: WITHOUT_END,
        });
        let commanded = self.record.iter().map(move |(prefix, until_s)| Denied {
            prefix: *prefix,
            until_ns: until_s.map_or(WITHOUT_END, |until_s| {
                let left = Duration::from_secs(until_s.saturating_sub(now.wall_s));
                let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
                now.boot_ns.saturating_add(left_ns)
            }),
        });
        file.chain(commanded)
    }
}

fn parsed(texts: &[String]) -> Result<Vec<Prefix>, String> {
    let parse = |text: &String| file::prefix(text).map_err(|why| format!("{text}: {why}"));
    texts.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now {
        wall_s: 1_000,
        boot_ns: 5_000_000_000,
    };

    fn add(prefix: &str, seconds: Option<u64>) -> Request {
        Request::Add {
            prefixes: vec![prefix.to_owned()],
            seconds,
        }
    }

    fn remove(prefix: &str) -> Request {
        Request::Remove {
            prefixes: vec![prefix.to_owned()],
        }
    }

    fn at(wall_s: u64) -> Now {
        Now { wall_s, ..NOW }
    }

    #[test]
    fn an_end_is_that_of_the_kernels_clock() {
        let mut list = List::default();
        list.apply(&add("2001:db8:7::/64", Some(10)), NOW).unwrap();
        list.apply(&add("192.0.2.7", None), NOW).unwrap();
        let mut ends: Vec<u64> = list.denied(at(1_004)).map(|one| one.until_ns).collect();
        ends.sort_unstable();
        assert_eq!(ends, [11_000_000_000, WITHOUT_END]);
    }

    #[test]
    fn the_last_command_about_a_prefix_counts_and_ended_entries_go() {
        let mut list = List::default();
        list.apply(&add("192.0.2.7", None), NOW).unwrap();
        list.apply(&add("192.0.2.7", Some(10)), NOW).unwrap();
        assert_eq!(list.record.values().collect::<Vec<_>>(), [&Some(1_010)]);
        list.apply(&add("192.0.2.8", None), at(1_010)).unwrap();
        assert_eq!(list.record.len(), 1);
        list.apply(&remove("192.0.2.8/32"), at(1_010)).unwrap();
        assert!(list.record.is_empty());
    }

    #[test]
    fn a_wrong_command_says_what_is_wrong() {
        let mut list = List {
            file: vec![Prefix::parse("192.0.2.0/24").unwrap()],
            ..List::default()
        };
        let mut error = |request: &Request| list.apply(request, NOW).unwrap_err();
        assert!(error(&add("::/0", None)).starts_with("::/0: "));
        assert!(error(&add("host", None)).contains("write 2001:db8:7::/64"));
        assert!(error(&remove("192.0.2.0/24")).contains("--deny-file"));
        assert!(error(&remove("192.0.2.1")).contains("is not denied"));
    }
}
