//! Where a socket stands: a network namespace, and the cgroup whose programs lead it.
//!
//! Which cgroup a socket belongs to is fixed when it is made. So one small process in each node's cgroup makes the
//! sockets of its pods and hands them over, and the test uses them as if it were the pod.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_world::{Host, Process, Program, World, enter};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

/// How long a connection and an answer may take. Longer is a failure.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// What a socket keeps of datagrams that nobody has read yet, in bytes of the kernel's.
const DATAGRAMS_LEN_MAX: usize = 8 << 20;

/// Names the socket on which the maker is asked.
const MAKER: &str = "DORMOUSE_TEST_MAKER";

/// Makes sockets in a node's cgroup.
pub(crate) struct Maker {
    stream: Mutex<UnixStream>,
    _process: Process,
}

impl Maker {
    /// Starts the maker in this host's cgroup: this test program once more, with one test to run.
    pub(crate) fn start(world: &World, host: &Host) -> Arc<Self> {
        let path = host.folder.join("maker.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let program = Program::new(std::env::current_exe().unwrap())
            .args(["sockets_for_others", "--exact", "--ignored", "--nocapture"])
            .env(MAKER, &path)
            .log(host.log("maker"));
        let process = world.spawn(host, &program).unwrap();
        let (stream, _) = listener.accept().unwrap();
        Arc::new(Self {
            stream: Mutex::new(stream),
            _process: process,
        })
    }

    fn make(&self, netns: &File, domain: Domain, kind: Type) -> io::Result<Socket> {
        let stream = self.stream.lock().unwrap();
        send(&stream, request(domain, kind), Some(netns.as_fd()))?;
        let (_, socket) = receive(&stream)?;
        socket
            .map(Socket::from)
            .ok_or_else(|| io::Error::other("the maker could not make a socket"))
    }
}

/// The maker's whole life: makes what it is asked for until nobody is left to ask.
pub(crate) fn make_sockets() -> io::Result<()> {
    let Some(path) = std::env::var_os(MAKER) else {
        return Ok(());
    };
    let stream = UnixStream::connect(path)?;
    while let Ok((what, Some(netns))) = receive(&stream) {
        setns(netns, CloneFlags::CLONE_NEWNET)?;
        let [domain, kind] = what.map(i32::from);
        let made = Socket::new(Domain::from(domain), Type::from(kind), None);
        let made = made.as_ref().ok().map(AsFd::as_fd);
        send(&stream, what, made)?;
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

#[derive(Clone)]
enum Home {
    /// The namespace of the calling thread, no cgroup of a node.
    Here,
    /// That namespace, no cgroup of a node: what its sockets send, only packet programs see.
    Netns,
    /// That namespace, and the cgroup of the maker.
    Cgroup(Arc<Maker>, Arc<File>),
}

/// Where sockets are made.
#[derive(Clone)]
pub(crate) struct Place {
    netns: PathBuf,
    home: Home,
}

impl Place {
    /// A place whose sockets no program of a cgroup sees.
    pub(crate) fn outside(netns: &Path) -> Self {
        Self {
            netns: netns.to_owned(),
            home: Home::Netns,
        }
    }

    /// A place in a node's cgroup.
    pub(crate) fn of(maker: &Arc<Maker>, netns: &Path) -> Self {
        let file = Arc::new(File::open(netns).unwrap());
        Self {
            netns: netns.to_owned(),
            home: Home::Cgroup(Arc::clone(maker), file),
        }
    }

    /// Runs `work` in the namespace.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        enter(&self.netns, work).unwrap()
    }

    /// The same place for a thread that stays there: its sockets cost no entering.
    pub(crate) fn stay(&self) -> Self {
        if let Home::Netns = self.home {
            setns(File::open(&self.netns).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            return Self {
                netns: self.netns.clone(),
                home: Home::Here,
            };
        }
        self.clone()
    }

    /// A new socket.
    pub(crate) fn socket(&self, domain: Domain, kind: Type) -> io::Result<Socket> {
        match &self.home {
            Home::Here => Socket::new(domain, kind, None),
            Home::Netns => self.inside(|| Socket::new(domain, kind, None)),
            Home::Cgroup(maker, netns) => maker.make(netns, domain, kind),
        }
    }

    /// A connection.
    pub(crate) fn dial(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.socket(Domain::for_address(to), Type::STREAM)?;
        socket.connect_timeout(&to.into(), ANSWER_LIMIT)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        Ok(stream)
    }

    /// A socket for datagrams to such an address.
    pub(crate) fn datagrams(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        let socket = self.socket(Domain::for_address(to), Type::DGRAM)?;
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(socket.into())
    }

    /// Room for all datagrams of all loads at once.
    pub(crate) fn widen(socket: &impl AsFd) {
        setsockopt(socket, RcvBufForce, &DATAGRAMS_LEN_MAX).unwrap();
    }

    /// Listening sockets for both families, of TCP and of UDP.
    pub(crate) fn listen(&self, port: u16) -> (Socket, Socket) {
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
    pub(crate) fn counted(&self, counter: &str) -> u64 {
        let text = self.run("nft", &format!("-j list counter {counter}"));
        let told: Value = serde_json::from_str(&text).unwrap();
        let objects = told["nftables"].as_array().unwrap();
        let counter = objects.iter().find_map(|object| object.get("counter"));
        counter.unwrap()["packets"].as_u64().unwrap()
    }

    /// Runs a command in the namespace; what it wrote.
    pub(crate) fn run(&self, program: &str, arguments: &str) -> String {
        let done = self
            .inside(|| Command::new(program).args(arguments.split(' ')).output())
            .unwrap();
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{program} {arguments}: {errors}");
        String::from_utf8(done.stdout).unwrap()
    }
}
