//! What delays single wakes: the longest turn of a shard of control, and the longest pause of a timer in this process, which only
//! the host and the processes beside it can cause.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::control::METRICS;

/// Period of the timer.
const PERIOD: Duration = Duration::from_millis(1);
/// The histogram of the turns of shards.
const TURNS: &str = "dormouse_apps_shard_event_seconds_bucket{";

/// Observes pauses until [`Pauses::end`].
pub(crate) struct Pauses {
    before: Turns,
    ended: Arc<AtomicBool>,
    timer: JoinHandle<Duration>,
}

/// The longest pauses of a time.
pub(crate) struct Longest {
    /// The longest turn of a shard, rounded up to a bucket of its histogram, ms.
    pub(crate) turn: f64,
    /// The longest pause of the timer, ms.
    pub(crate) timer: f64,
}

/// The number of turns of all shards that were not longer than this many nanoseconds.
type Turns = BTreeMap<u64, u64>;

impl Pauses {
    pub(crate) async fn begin() -> Result<Self> {
        let before = turns(&metrics().await?);
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let timer = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !end.load(Ordering::Relaxed) {
                let asked = Instant::now();
                std::thread::sleep(PERIOD);
                longest = longest.max(asked.elapsed().saturating_sub(PERIOD));
            }
            longest
        });
        Ok(Self {
            before,
            ended,
            timer,
        })
    }

    pub(crate) async fn end(self) -> Result<Longest> {
        self.ended.store(true, Ordering::Relaxed);
        let timer = self.timer.join().ok().context("the timer has ended")?;
        let after = turns(&metrics().await?);
        Ok(Longest {
            turn: longest(&self.before, &after) as f64 / 1e6,
            timer: timer.as_secs_f64() * 1e3,
        })
    }
}

/// The metrics of control.
async fn metrics() -> Result<String> {
    let mut stream = TcpStream::connect(METRICS)
        .await
        .context("no metrics of control")?;
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

fn turns(metrics: &str) -> Turns {
    let mut turns = Turns::new();
    for line in metrics.lines().filter(|line| line.starts_with(TURNS)) {
        if let Some((limit, count)) = bucket(line) {
            *turns.entry(limit).or_default() += count;
        }
    }
    turns
}

/// The upper bound of a bucket in nanoseconds, and its count.
fn bucket(line: &str) -> Option<(u64, u64)> {
    let (_, rest) = line.split_once("le=\"")?;
    let (limit, _) = rest.split_once('"')?;
    let limit = match limit {
        "+Inf" => Duration::MAX,
        seconds => Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?,
    };
    let (_, count) = line.rsplit_once(' ')?;
    let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    Some((limit, count.parse().ok()?))
}

/// The upper bound of the longest turn, 0 without any; of one beyond all bounds, the highest of them.
fn longest(before: &Turns, after: &Turns) -> u64 {
    let since = |limit: &u64, count: &u64| count - before.get(limit).copied().unwrap_or(0);
    let all = after.iter().map(|(limit, count)| since(limit, count)).max();
    let all = all.filter(|all| *all > 0);
    let mut bounds = after.iter().filter(|(limit, _)| **limit < u64::MAX);
    let found = bounds.find(|(limit, count)| Some(since(limit, count)) == all);
    let highest = after.keys().rfind(|limit| **limit < u64::MAX);
    let found = found.map(|(limit, _)| *limit);
    all.and(found.or(highest.copied())).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(counts: [[u64; 3]; 2]) -> Turns {
        let line = |shard: usize, limit: &str, count: u64| {
            format!("{TURNS}le=\"{limit}\",shard=\"{shard}\"}} {count}\n")
        };
        let shards = counts.iter().enumerate();
        let lines = shards.flat_map(|(shard, counts)| {
            let limits = ["0.000001", "0.004", "+Inf"];
            let lines = limits.into_iter().zip(counts);
            lines.map(move |(limit, count)| line(shard, limit, *count))
        });
        turns(&lines.collect::<String>())
    }

    #[test]
    fn the_longest_turn_is_that_of_the_highest_bucket_with_a_new_one() {
        let before = metrics([[5, 6, 6], [1, 1, 2]]);
        assert_eq!(longest(&before, &before), 0);
        assert_eq!(longest(&before, &metrics([[6, 7, 7], [1, 1, 2]])), 1_000);
        let after = metrics([[6, 7, 7], [1, 2, 3]]);
        assert_eq!(longest(&before, &after), 4_000_000);
        let beyond = metrics([[6, 7, 7], [1, 1, 3]]);
        assert_eq!(longest(&before, &beyond), 4_000_000);
    }
}
