//! A world: built, used and removed, whatever way its run ends.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cgroup;
use crate::error::WorldError;
use crate::host::{Host, Roots};
use crate::mounts;
use crate::plan::{self, Role, Seat, Spec};
use crate::process::{Process, Program};
use crate::removal;

/// A running world. Dropping it removes everything.
#[derive(Debug)]
pub struct World {
    prefix: String,
    roots: Roots,
    nodes: Vec<Host>,
    client: Host,
    control: Host,
    /// The claim on the world's name; the kernel closes it even when the process is killed.
    _claim: UnixListener,
}

impl World {
    /// Builds the world, after clearing what a killed run of the same prefix left.
    pub fn build(spec: &Spec) -> Result<Self, WorldError> {
        spec.check()?;
        let (claim, roots) = begin(&spec.prefix)?;
        mounts::bpffs()?;
        let seats = spec.seats();
        let host = |seat: &Seat| Host::new(&spec.prefix, seat, &roots);
        let of = |role: Role| seats.iter().filter(move |seat| seat.role == role).map(host);
        let nodes = seats
            .iter()
            .filter(|seat| matches!(seat.role, Role::Node { .. }))
            .map(host);
        let (Some(client), Some(control)) = (of(Role::Client).next(), of(Role::Control).next())
        else {
            return Err(WorldError::Nodes {
                nodes: spec.nodes,
                max: plan::NODES_MAX,
            });
        };
        // From here on a failure removes, by Drop, what was made so far.
        let nodes = nodes.collect();
        let prefix = spec.prefix.clone();
        let world = Self {
            prefix,
            nodes,
            client,
            control,
            roots: roots.clone(),
            _claim: claim,
        };
        world.wire(&seats)?;
        Ok(world)
    }

    /// Removes what a killed run of this prefix left. Nothing left is no error.
    pub fn clear(prefix: &str) -> Result<(), WorldError> {
        plan::check_prefix(prefix)?;
        begin(prefix).map(drop)
    }

    /// The name in front of everything that belongs to it.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The namespace in which the cables of all hosts meet.
    pub fn switch(&self) -> PathBuf {
        crate::netns::path(&format!("{}-switch", self.prefix))
    }

    /// The nodes, in the order of their numbers.
    pub fn nodes(&self) -> &[Host] {
        &self.nodes
    }

    /// The host of clients.
    pub fn client(&self) -> &Host {
        &self.client
    }

    /// The host that runs control.
    pub fn control(&self) -> &Host {
        &self.control
    }

    /// Starts a program on a host.
    pub fn spawn(&self, host: &Host, program: &Program) -> Result<Process, WorldError> {
        Process::start(host, program)
    }

    /// Removes everything; an error names what could not be removed.
    pub fn remove(&self) -> Result<(), WorldError> {
        removal::everything(&self.prefix, &self.roots)
    }

    fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.nodes.iter().chain([&self.client, &self.control])
    }

    fn wire(&self, seats: &[Seat]) -> Result<(), WorldError> {
        for host in self.hosts() {
            cgroup::create(&host.cgroup)?;
            fs::create_dir_all(&host.folder).map_err(WorldError::file("make", &host.folder))?;
        }
        ip(None, &plan::namespaces(&self.prefix, seats))?;
        for (host, seat) in self.hosts().zip(seats) {
            host.enter(|| set(&plan::settings(seat.role)))??;
        }
        ip(None, &plan::cables(&self.prefix, seats))?;
        let switch = format!("{}-switch", self.prefix);
        ip(Some(&switch), &plan::switch(seats))?;
        crate::netns::enter(&self.switch(), || merge_on_arrival(seats))??;
        for (host, seat) in self.hosts().zip(seats) {
            ip(Some(&host.name), &plan::host(seat, seats))?;
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            // A drop cannot fail, but the failure must be seen.
            let _ = writeln!(io::stderr(), "{error}");
        }
    }
}

/// Claims the world's name, and removes what is left of an earlier one.
fn begin(prefix: &str) -> Result<(UnixListener, Roots), WorldError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(WorldError::NotRoot);
    }
    let claim = claim(prefix)?;
    let roots = Roots::new(prefix, &mounts::cgroups()?);
    removal::everything(prefix, &roots)?;
    Ok((claim, roots))
}

fn claim(prefix: &str) -> Result<UnixListener, WorldError> {
    let name = format!("dormouse-world-{prefix}");
    let address = SocketAddr::from_abstract_name(&name);
    let bound = address.and_then(|address| UnixListener::bind_addr(&address));
    bound.map_err(|source| match source.kind() {
        ErrorKind::AddrInUse => WorldError::InUse {
            prefix: prefix.to_owned(),
        },
        _ => WorldError::file("claim the name", name)(source),
    })
}

/// Writes kernel settings in the namespace of the calling thread.
fn set(settings: &[(&str, &str)]) -> Result<(), WorldError> {
    for (name, value) in settings {
        let path = format!("/proc/sys/net/{name}");
        fs::write(&path, value).map_err(WorldError::file("write", &path))?;
    }
    Ok(())
}

/// Turns GRO on at the switch's end of every cable, as ports of a switch of the kernel's have it when they are real
/// network cards.
fn merge_on_arrival(seats: &[Seat]) -> Result<(), WorldError> {
    for Seat { name, .. } in seats {
        run(Command::new("ethtool").args(["-K", name, "gro", "on"]), &[])?;
    }
    Ok(())
}

/// Runs lines of `ip -batch`, in a namespace or in our own.
fn ip(netns: Option<&str>, lines: &[String]) -> Result<(), WorldError> {
    let mut command = Command::new("ip");
    command.arg("-6");
    if let Some(netns) = netns {
        command.args(["-netns", netns]);
    }
    run(command.args(["-batch", "-"]), lines)
}

fn run(command: &mut Command, lines: &[String]) -> Result<(), WorldError> {
    let program = command.get_program().to_string_lossy().into_owned();
    // `sudo` and minimal shells leave out the folders of these programs.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/sbin:/usr/sbin:/sbin";
    command
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let start = |source| WorldError::Start {
        program: program.clone(),
        source,
    };
    let mut child = command.spawn().map_err(start)?;
    let mut text = lines.join("\n");
    text.push('\n');
    if let Some(mut input) = child.stdin.take() {
        // The status of a program that reads nothing shows whether it failed.
        let _ = input.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(start)?;
    if output.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(WorldError::Refused { program, output })
}
