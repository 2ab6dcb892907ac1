//! Shows what a long step is doing: a spinner on a terminal, plain lines elsewhere, always with the time it took.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::interrupt;

/// Without a terminal, how long a step may be silent before a line says that it still runs.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(30);

/// How long a command may write nothing before it is taken to hang, and ended.
const SILENCE_MAX: Duration = Duration::from_mins(15);

/// How often a step looks whether it shall end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a command may take to end after it was asked to.
const END_LIMIT: Duration = Duration::from_secs(10);

/// How much of a failed command's output is shown, in lines: the reason is at the end.
const SHOWN_LINES_MAX: usize = 400;

/// Lines that may wait between a command's output and its reader; the command then waits.
const LINES_AHEAD_MAX: usize = 1024;

/// What becomes of a command's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Output {
    /// Shown only when the command fails.
    OnFailure,
    /// Like [`Output::OnFailure`], where stdout is for programs and only stderr for people.
    ErrorsOnFailure,
    /// Shown line by line as it comes.
    Always,
}

/// One line that a command wrote.
enum Line {
    Stdout(String),
    Stderr(String),
}

/// Prints a line for people. Progress and results share one stream, so that they keep their order.
pub(crate) fn say(line: &str) {
    // A closed terminal is no reason to stop half way: the exit status still tells.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A step that is going on; says how it ended when told.
pub(crate) struct Step {
    title: String,
    began: Instant,
    spinner: Option<ProgressBar>,
}

impl Step {
    /// Begins a step, and says so.
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

    /// Shows what the step is at, beside its title; only a terminal has room for that.
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

    /// Ends the step well.
    pub(crate) fn done(self) {
        self.end("✓");
    }

    /// Ends the step badly; the caller says why.
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

/// Runs a command as a step and returns what it wrote to stdout; when it fails, its output is shown.
pub(crate) fn run(title: &str, command: &mut Command, output: Output) -> anyhow::Result<String> {
    run_watched(title, command, output, |_| ())
}

/// Like [`run`], and gives each line of stdout to `watch` as it comes.
pub(crate) fn run_watched(
    title: &str,
    command: &mut Command,
    output: Output,
    mut watch: impl FnMut(&str),
) -> anyhow::Result<String> {
    if interrupt::asked() {
        bail!("interrupted");
    }
    let step = Step::begin(title);
    let (mut child, lines) = start(command)?;
    let mut stdout = String::new();
    let mut last = VecDeque::new();
    follow(&lines, &step, &child, SILENCE_MAX, |line| {
        let for_people = output != Output::ErrorsOnFailure || matches!(line, Line::Stderr(_));
        let text = match line {
            Line::Stdout(text) => {
                watch(&text);
                stdout.push_str(&text);
                stdout.push('\n');
                text
            }
            Line::Stderr(text) => text,
        };
        match output {
            Output::Always => step.say(&text),
            _ if for_people => keep_last(&mut last, text),
            _ => {}
        }
    });
    let status = child
        .wait()
        .with_context(|| format!("failed to wait for {command:?}"))?;
    if status.success() {
        step.done();
        return Ok(stdout);
    }
    step.failed();
    for line in &last {
        say(line);
    }
    bail!("{} failed ({status})", shown(command))
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

fn start(command: &mut Command) -> anyhow::Result<(Child, Receiver<Line>)> {
    // A group of its own: Ctrl-C reaches us alone, and we pass it on to all that the command started.
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
    Ok((child, lines))
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

/// Passes the lines on until both streams are closed; ends a command that writes none for so long as `silence_max`.
fn follow(
    lines: &Receiver<Line>,
    step: &Step,
    child: &Child,
    silence_max: Duration,
    mut each: impl FnMut(Line),
) {
    let mut heard = Instant::now();
    let mut shown = heard;
    let mut ending: Option<Instant> = None;
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => {
                if let Line::Stderr(text) = &line {
                    step.at(text);
                }
                heard = Instant::now();
                each(line);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if step.spinner.is_none() && heard.max(shown).elapsed() > SIGN_OF_LIFE_EVERY {
            shown = Instant::now();
            say(&format!(
                "… {}: {} s",
                step.title,
                step.began.elapsed().as_secs()
            ));
        }
        let hangs = heard.elapsed() > silence_max;
        if hangs && ending.is_none() {
            let (title, silent_s) = (&step.title, heard.elapsed().as_secs());
            step.say(&format!(
                "{title}: wrote nothing for {silent_s} s and is ended; what it wrote last tells where it hangs"
            ));
        }
        if hangs || ending.is_some() || interrupt::asked() {
            end(child, &mut ending);
        }
    }
}

/// Asks a command to end, once; kills it when it takes too long.
fn end(child: &Child, asked: &mut Option<Instant>) {
    let group = Pid::from_raw(child.id().cast_signed());
    let signal = match asked {
        None => Signal::SIGTERM,
        Some(asked) if asked.elapsed() > END_LIMIT => Signal::SIGKILL,
        Some(_) => return,
    };
    *asked = Some(Instant::now());
    // It may be gone already, which is what we want.
    let _ = killpg(group, signal);
}

fn keep_last(last: &mut VecDeque<String>, line: String) {
    if last.len() == SHOWN_LINES_MAX {
        last.pop_front();
    }
    last.push_back(line);
}

#[cfg(test)]
mod tests;
