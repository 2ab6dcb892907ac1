//! Commands run as steps: their output and their failures.

use super::*;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn a_command_returns_its_stdout() {
    let mut command = shell("echo one; echo aside >&2; echo two");
    let stdout = run("say", &mut command, Output::OnFailure);
    assert_eq!(stdout.unwrap(), "one\ntwo\n");
}

#[test]
fn a_failed_command_is_named_as_it_would_be_typed() {
    let error = run("fail", &mut shell("exit 3"), Output::OnFailure).unwrap_err();
    assert_eq!(error.to_string(), "sh -c exit 3 failed (exit status: 3)");
}

#[test]
fn machine_readable_stdout_is_returned_to_the_caller() {
    let stdout = run("build", &mut shell("echo {}"), Output::ErrorsOnFailure);
    assert_eq!(stdout.unwrap(), "{}\n");
}

#[test]
fn a_missing_program_is_named() {
    let error = run(
        "miss",
        &mut Command::new("no-such-program"),
        Output::OnFailure,
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "failed to start no-such-program");
}

#[test]
fn the_last_lines_are_shown_up_to_the_limit() {
    let lines: Vec<_> = (0..SHOWN_LINES_MAX + 5)
        .map(|line| line.to_string())
        .collect();
    assert_eq!(last_lines(&lines), &lines[5..]);
    assert_eq!(last_lines(&lines[..5]), &lines[..5]);
}

#[test]
fn a_command_that_hangs_is_ended() {
    let mut command = shell("echo begun; exec sleep 1000");
    let step = Step::begin("hang");
    let mut running = Running::start(&mut command).unwrap();
    let mut received = 0;
    running.read(&step, Duration::from_millis(200), |_| received += 1);
    assert_eq!(received, 1);
    assert!(!running.child.wait().unwrap().success());
}
