//! Progress of long steps: a spinner on a terminal, plain lines elsewhere, and the duration of each step.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::interrupt;

/// Without a terminal, interval of lines for a step that prints nothing.
const REPORT_EVERY: Duration = Duration::from_secs(30);

/// Time without output after which a command counts as hung and is terminated.
const SILENCE_MAX: Duration = Duration::from_mins(15);

/// Interval at which a step checks for an interrupt.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Time between SIGTERM and SIGKILL.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Number of last lines of a failed command's output that are shown.
const SHOWN_LINES_MAX: usize = 400;

/// Lines buffered between a command and its reader; the command blocks when it is full.
const LINES_AHEAD_MAX: usize = 1024;

/// Whether a command's output is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Output {
    /// Shown only when the command fails.
    OnFailure,
    /// Like [`Output::OnFailure`], but without stdout, which is machine-readable.
    ErrorsOnFailure,
}

/// One line that a command wrote.
pub(crate) enum Line {
    Stdout(String),
    Stderr(String),
}

/// Prints a line to stderr. Progress and results share one stream, so that they keep their order.
pub(crate) fn say(line: &str) {
    // Ignores a closed terminal: the exit status still reports the result.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A running step.
pub(crate) struct Step {
    title: String,
    began: Instant,
    spinner: Option<ProgressBar>,
}

impl Step {
    /// Begins a step and prints its title.
    pub(crate) fn begin(title: &str) -> Self {
        let spinner = io::stderr().is_terminal().then(|| {
            let spinner = ProgressBar::new_spinner().with_message(title.to_owned());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
                spinner.set_style(style);
            }
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        if spinner.is_none() {
            say(&format!("… {title}"));
        }
        Self {
            title: title.to_owned(),
            began: Instant::now(),
            spinner,
        }
    }

    /// Shows a detail beside the title, on a terminal only.
    pub(crate) fn at(&self, detail: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.set_message(format!("{}: {}", self.title, detail.trim()));
        }
    }

    /// Prints a line without disturbing the spinner.
    pub(crate) fn say(&self, line: &str) {
        match &self.spinner {
            Some(spinner) => spinner.suspend(|| say(line)),
            None => say(line),
        }
    }

    /// Runs a command within the step, and passes each line to `each` as it arrives.
    pub(crate) fn run(
        &self,
        command: &mut Command,
        each: impl FnMut(Line),
    ) -> anyhow::Result<ExitStatus> {
        if interrupt::requested() {
            bail!("interrupted");
        }
        let mut running = Running::start(command)?;
        running.read(self, SILENCE_MAX, each);
        let status = running.child.wait();
        status.with_context(|| format!("failed to wait for {command:?}"))
    }

    /// Ends the step with success.
    pub(crate) fn done(self) {
        self.end("✓");
    }

    /// Ends the step with a failure, which the caller explains.
    pub(crate) fn failed(self) {
        self.end("✗");
    }

    fn end(self, mark: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
        say(&format!(
            "{mark} {} ({:.1} s)",
            self.title,
            self.began.elapsed().as_secs_f64()
        ));
    }
}

/// Runs a command as a step and returns its stdout; if it fails, its output is shown.
pub(crate) fn run(title: &str, command: &mut Command, output: Output) -> anyhow::Result<String> {
    let step = Step::begin(title);
    let mut stdout = String::new();
    let mut last = Vec::new();
    let outcome = step.run(command, |line| match line {
        Line::Stdout(text) => {
            stdout.push_str(&text);
            stdout.push('\n');
            if output == Output::OnFailure {
                last.push(text);
            }
        }
        Line::Stderr(text) => last.push(text),
    });
    let status = match outcome {
        Ok(status) if status.success() => {
            step.done();
            return Ok(stdout);
        }
        other => {
            step.failed();
            other?
        }
    };
    for line in last_lines(&last) {
        say(line);
    }
    bail!("{} failed ({status})", shown(command))
}

/// The last lines of a failed command's output: those that are shown.
pub(crate) fn last_lines(lines: &[String]) -> &[String] {
    &lines[lines.len().saturating_sub(SHOWN_LINES_MAX)..]
}

/// The command as typed in a shell.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A command and the lines that it writes.
struct Running {
    child: Child,
    lines: Receiver<Line>,
}

impl Running {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        // A process group of its own: Ctrl-C reaches only this process, which then signals the whole group.
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("failed to start {}", shown(command)))?;
        let (sender, lines) = sync_channel(LINES_AHEAD_MAX);
        if let Some(stdout) = child.stdout.take() {
            forward(stdout, sender.clone(), Line::Stdout);
        }
        if let Some(stderr) = child.stderr.take() {
            forward(stderr, sender, Line::Stderr);
        }
        Ok(Self { child, lines })
    }

    /// Forwards lines until both streams are closed; terminates a command without output for `silence_max`.
    fn read(&self, step: &Step, silence_max: Duration, mut each: impl FnMut(Line)) {
        let mut last_output = Instant::now();
        let mut reported = last_output;
        let mut ending: Option<Instant> = None;
        loop {
            match self.lines.recv_timeout(POLL_EVERY) {
                Ok(line) => {
                    if let Line::Stderr(text) = &line {
                        step.at(text);
                    }
                    last_output = Instant::now();
                    each(line);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if step.spinner.is_none() && last_output.max(reported).elapsed() > REPORT_EVERY {
                reported = Instant::now();
                say(&format!(
                    "… {}: {} s",
                    step.title,
                    step.began.elapsed().as_secs()
                ));
            }
            let hangs = last_output.elapsed() > silence_max;
            if hangs && ending.is_none() {
                let (title, silent_s) = (&step.title, last_output.elapsed().as_secs());
                step.say(&format!(
                    "{title}: no output for {silent_s} s, terminating it; its last output shows where it hangs"
                ));
            }
            if hangs || ending.is_some() || interrupt::requested() {
                end(&self.child, &mut ending);
            }
        }
    }
}

fn forward(source: impl Read + Send + 'static, target: SyncSender<Line>, wrap: fn(String) -> Line) {
    thread::spawn(move || {
        for bytes in BufReader::new(source).split(b'\n').map_while(Result::ok) {
            if target
                .send(wrap(String::from_utf8_lossy(&bytes).into_owned()))
                .is_err()
            {
                return;
            }
        }
    });
}

/// Sends SIGTERM once, and SIGKILL after [`END_LIMIT`].
fn end(child: &Child, signalled: &mut Option<Instant>) {
    let group = Pid::from_raw(child.id().cast_signed());
    let signal = match signalled {
        None => Signal::SIGTERM,
        Some(at) if at.elapsed() > END_LIMIT => Signal::SIGKILL,
        Some(_) => return,
    };
    *signalled = Some(Instant::now());
    // Fails if the group has ended already.
    let _ = killpg(group, signal);
}

#[cfg(test)]
mod tests;
