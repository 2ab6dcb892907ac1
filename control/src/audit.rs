//! The audit log: lines in a bounded queue, written to a file by a task of their own. A slow disk delays no request: what does not fit is
//! dropped, and counted.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tracing::{error, info};

/// Lines that wait to be written. A line has at most some 10 kB: a few kB each of URI and of user agent, and the names.
const LINES_MAX: usize = 4_096;

/// The name of kube-apiserver's backend that writes files, for its metric.
type Plugin = [(&'static str, &'static str); 1];
const PLUGIN: Plugin = [("plugin", "log")];

/// A handle for those who add lines. The log ends when all handles are dropped.
#[derive(Clone, Debug)]
pub struct Audit {
    lines: mpsc::Sender<Vec<u8>>,
    counters: Counters,
}

/// The counters, with kube-apiserver's names.
#[derive(Clone, Debug, Default)]
struct Counters {
    events: Counter,
    errors: Family<Plugin, Counter>,
}

/// The end of the queue, with its output.
pub struct Log {
    lines: mpsc::Receiver<Vec<u8>>,
    output: Box<dyn Write + Send>,
    counters: Counters,
}

/// Opens the log in a file, to which it appends, or on standard output (`-`).
pub fn open(path: &Path) -> io::Result<(Audit, Log)> {
    let output: Box<dyn Write + Send> = if path == Path::new("-") {
        Box::new(io::stdout())
    } else {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path)?;
        Box::new(file)
    };
    Ok(to(output))
}

/// A log to any output.
pub fn to(output: Box<dyn Write + Send>) -> (Audit, Log) {
    let (sender, lines) = mpsc::channel(LINES_MAX);
    let counters = Counters::default();
    let audit = Audit {
        lines: sender,
        counters: counters.clone(),
    };
    let log = Log {
        lines,
        output,
        counters,
    };
    (audit, log)
}

impl Audit {
    /// Adds the counters to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let Counters { events, errors } = &self.counters;
        let help = "Audit events sent to the log";
        registry.register("apiserver_audit_event", help, events.clone());
        let help = "Audit events that were dropped or could not be written";
        registry.register("apiserver_audit_error", help, errors.clone());
        // It is there before the first error.
        drop(errors.get_or_create(&PLUGIN));
    }

    /// Adds a line, which ends with a newline; drops it if the queue is full.
    pub(crate) fn add(&self, line: Vec<u8>) {
        self.counters.events.inc();
        if self.lines.try_send(line).is_err() {
            self.counters.errors.get_or_create(&PLUGIN).inc();
        }
    }
}

impl Log {
    /// Writes the lines, until all handles are dropped. Blocks.
    pub fn write(mut self) {
        let mut output = BufWriter::new(self.output);
        let mut is_failing = false;
        while let Some(line) = self.lines.blocking_recv() {
            let is_last = self.lines.is_empty();
            let written = output.write_all(&line);
            let written = written.and_then(|()| if is_last { output.flush() } else { Ok(()) });
            match written {
                Ok(()) if is_failing && is_last => {
                    is_failing = false;
                    info!("the audit log is written again");
                }
                Ok(()) => {}
                Err(error) => {
                    self.counters.errors.get_or_create(&PLUGIN).inc();
                    if !is_failing {
                        error!(%error, "the audit log cannot be written: events are lost until it can");
                    }
                    is_failing = true;
                }
            }
        }
        // An error was reported at the last line.
        let _ = output.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use parking_lot::Mutex;

    use super::*;

    /// An output that fails while the flag is set.
    #[derive(Clone, Default)]
    struct Output {
        written: Arc<Mutex<Vec<u8>>>,
        fails: Arc<AtomicBool>,
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.fails.load(Ordering::Relaxed) {
                return Err(io::Error::other("the disk is full"));
            }
            self.written.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn errors(audit: &Audit) -> u64 {
        audit.counters.errors.get_or_create(&PLUGIN).get()
    }

    #[test]
    fn lines_above_the_limit_of_the_queue_are_dropped_and_counted_and_the_others_written() {
        let output = Output::default();
        let (audit, log) = to(Box::new(output.clone()));
        for _ in 0..LINES_MAX + 3 {
            audit.add(b"x\n".to_vec());
        }
        assert_eq!(errors(&audit), 3);
        drop(audit);
        log.write();
        assert_eq!(output.written.lock().len(), 2 * LINES_MAX);
    }

    #[test]
    fn an_output_that_fails_ends_nothing() {
        let output = Output::default();
        output.fails.store(true, Ordering::Relaxed);
        let (audit, log) = to(Box::new(output));
        let other = audit.clone();
        audit.add(b"x\n".to_vec());
        drop(audit);
        let counted = std::thread::spawn(move || {
            while errors(&other) == 0 {
                std::thread::yield_now();
            }
        });
        log.write();
        counted.join().unwrap();
    }
}
