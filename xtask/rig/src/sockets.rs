//! Sockets of a node and its pods: opened in a network namespace, and in the cgroup whose programs apply to them.
//!
//! A socket belongs to the cgroup of the process that opens it. So one small process in each node's cgroup opens the sockets
//! of the node and its pods, and passes them to the test.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_world::{Host, Process, enter};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use crate::netns::run_in;
use crate::role;

/// How long a connection and an answer may take, on a machine that does much else. Longer is a failure.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The receive buffer of a socket for datagrams, in bytes of the kernel's.
const DATAGRAMS_LEN_MAX: usize = 8 << 20;

/// Opens sockets in a node's cgroup.
#[derive(Debug)]
pub struct Opener {
    stream: Mutex<UnixStream>,
    _process: Process,
}

impl Opener {
    /// Starts the process in this host's cgroup.
    pub fn start(host: &Host) -> Arc<Self> {
        let path = host.folder.join("opener.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let program = role::program(role::OPENER, path.to_str().unwrap()).log(host.log("opener"));
        let process = Process::start(host, &program).unwrap();
        let (stream, _) = listener.accept().unwrap();
        Arc::new(Self {
            stream: Mutex::new(stream),
            _process: process,
        })
    }

    fn open(&self, netns: &File, domain: Domain, kind: Type) -> io::Result<Socket> {
        let stream = self.stream.lock().unwrap();
        send(&stream, request(domain, kind), Some(netns.as_fd()))?;
        let (_, socket) = receive(&stream)?;
        socket
            .map(Socket::from)
            .ok_or_else(|| io::Error::other("no socket could be opened"))
    }
}

/// The opener's process: opens what is requested on the socket at `path` until the test closes it.
pub(crate) fn open_for(path: &str) -> io::Result<()> {
    let stream = UnixStream::connect(path)?;
    while let Ok((what, Some(netns))) = receive(&stream) {
        setns(netns, CloneFlags::CLONE_NEWNET)?;
        let [domain, kind] = what.map(i32::from);
        let opened = Socket::new(Domain::from(domain), Type::from(kind), None);
        let opened = opened.as_ref().ok().map(AsFd::as_fd);
        send(&stream, what, opened)?;
    }
    Ok(())
}

fn request(domain: Domain, kind: Type) -> [u8; 2] {
    [i32::from(domain), i32::from(kind)].map(|number| u8::try_from(number).unwrap())
}

fn send(stream: &UnixStream, what: [u8; 2], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = file.as_slice();
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    let bytes = [IoSlice::new(&what)];
    sendmsg(stream, &bytes, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(stream: &UnixStream) -> io::Result<([u8; 2], Option<OwnedFd>)> {
    let mut what = [0; 2];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(&mut what)];
    let message = recvmsg(stream, &mut bytes, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes != what.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((what, file))
}

#[derive(Clone, Debug)]
enum By {
    /// By the calling thread, in its own namespace.
    Thread,
    /// By a thread in the namespace. No program of a cgroup applies to what they send, only those of links.
    Entering,
    /// By the opener, in the namespace and in the node's cgroup.
    Opener(Arc<Opener>, Arc<File>),
}

/// Where sockets are opened.
#[derive(Clone, Debug)]
pub struct Sockets {
    netns: PathBuf,
    by: By,
}

impl Sockets {
    /// Sockets in this namespace and in no cgroup of a node.
    pub fn bare(netns: &Path) -> Self {
        Self {
            netns: netns.to_owned(),
            by: By::Entering,
        }
    }

    /// Sockets in this namespace and in the opener's cgroup.
    pub fn of(opener: &Arc<Opener>, netns: &Path) -> Self {
        let file = Arc::new(File::open(netns).unwrap());
        Self {
            netns: netns.to_owned(),
            by: By::Opener(Arc::clone(opener), file),
        }
    }

    /// The file that names the namespace.
    pub fn netns(&self) -> &Path {
        &self.netns
    }

    /// Runs `work` in the namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        enter(&self.netns, work).unwrap()
    }

    /// The same for a thread that stays in the namespace: no thread is started for each socket.
    #[must_use]
    pub fn stay(&self) -> Self {
        if let By::Entering = self.by {
            setns(File::open(&self.netns).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            return Self {
                netns: self.netns.clone(),
                by: By::Thread,
            };
        }
        self.clone()
    }

    /// A new socket.
    pub fn socket(&self, domain: Domain, kind: Type) -> io::Result<Socket> {
        match &self.by {
            By::Thread => Socket::new(domain, kind, None),
            By::Entering => self.inside(|| Socket::new(domain, kind, None)),
            By::Opener(opener, netns) => opener.open(netns, domain, kind),
        }
    }

    /// A connection.
    pub fn dial(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.socket(Domain::for_address(to), Type::STREAM)?;
        socket.connect_timeout(&to.into(), ANSWER_LIMIT)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        Ok(stream)
    }

    /// A socket for datagrams to an address of this family.
    pub fn datagrams(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        let socket = self.socket(Domain::for_address(to), Type::DGRAM)?;
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(socket.into())
    }

    /// Gives a socket room for all datagrams of all loads at once.
    pub fn widen(socket: &impl AsFd) {
        setsockopt(socket, RcvBufForce, &DATAGRAMS_LEN_MAX).unwrap();
    }

    /// Listening sockets for both families, of TCP and of UDP.
    pub fn listen(&self, port: u16) -> (Socket, Socket) {
        let [streams, datagrams] = [Type::STREAM, Type::DGRAM].map(|kind| {
            let socket = self.socket(Domain::IPV6, kind).unwrap();
            socket.set_only_v6(false).unwrap();
            socket.set_reuse_address(true).unwrap();
            let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            socket.bind(&any.into()).unwrap();
            socket
        });
        assert_eq!(streams.protocol().unwrap(), Some(Protocol::TCP));
        streams.listen(4_096).unwrap();
        Self::widen(&datagrams);
        (streams, datagrams)
    }

    /// Packets that a counter of nftables has counted; it is named by family, table and its own name.
    pub fn counted(&self, counter: &str) -> u64 {
        let text = self.run("nft", &format!("-j list counter {counter}"));
        let listed: Value = serde_json::from_str(&text).unwrap();
        let objects = listed["nftables"].as_array().unwrap();
        let counter = objects.iter().find_map(|object| object.get("counter"));
        counter.unwrap()["packets"].as_u64().unwrap()
    }

    /// Runs a command in the namespace, its arguments separated by single spaces; returns what it wrote.
    pub fn run(&self, program: &str, arguments: &str) -> String {
        run_in(&self.netns, program, arguments)
    }
}
