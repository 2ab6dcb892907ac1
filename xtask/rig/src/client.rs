//! Clients: which server answers, which address of the client it sees, and which address the client sees.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

use crate::sockets::Sockets;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The server's name for itself.
    pub name: String,
    /// The client's address as the server sees it.
    pub seen: IpAddr,
    /// The server's address as the client sees it.
    pub from: SocketAddr,
}

/// Asks over a new connection; the server's address is that of getpeername(2).
pub fn tcp(sockets: &Sockets, to: SocketAddr) -> io::Result<Answer> {
    let stream = sockets.dial(to)?;
    let from = stream.peer_addr()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    answer(&line, from)
}

/// Asks with a datagram of an unconnected socket.
pub fn udp(sockets: &Sockets, to: SocketAddr) -> io::Result<Answer> {
    sized_udp(sockets, to, 9)
}

/// The same with a datagram of this length in bytes, which has to come back whole.
pub fn sized_udp(sockets: &Sockets, to: SocketAddr, length: usize) -> io::Result<Answer> {
    ask_from(&sockets.datagrams(to)?, to, length)
}

/// Asks with a datagram of this socket.
pub fn ask_from(socket: &UdpSocket, to: SocketAddr, length: usize) -> io::Result<Answer> {
    let payload = pattern(length);
    socket.send_to(&payload, to)?;
    let mut bytes = vec![0; 65_536];
    let (length, from) = socket.recv_from(&mut bytes)?;
    parse(&bytes[..length], &payload, from)
}

/// Asks with a datagram of a connected socket; the server's address is that of getpeername(2).
pub fn connected_udp(sockets: &Sockets, to: SocketAddr) -> io::Result<Answer> {
    let socket = sockets.datagrams(to)?;
    socket.connect(to)?;
    ask_connected(&socket)
}

/// Asks with a datagram of this connected socket.
pub fn ask_connected(socket: &UdpSocket) -> io::Result<Answer> {
    let payload = pattern(9);
    socket.send(&payload)?;
    let mut bytes = vec![0; 65_536];
    let length = socket.recv(&mut bytes)?;
    parse(&bytes[..length], &payload, socket.peer_addr()?)
}

fn parse(bytes: &[u8], payload: &[u8], from: SocketAddr) -> io::Result<Answer> {
    let newline = bytes.iter().position(|byte| *byte == b'\n');
    let newline = newline.ok_or_else(|| io::Error::other("no line"))?;
    if &bytes[newline + 1..] != payload {
        return Err(io::Error::other("the datagram came back changed"));
    }
    answer(&String::from_utf8_lossy(&bytes[..newline]), from)
}

fn answer(line: &str, from: SocketAddr) -> io::Result<Answer> {
    let (name, peer) = line
        .trim_end()
        .split_once(' ')
        .ok_or_else(|| io::Error::other(format!("no greeting: {line:?}")))?;
    let peer: SocketAddr = peer.parse().map_err(io::Error::other)?;
    Ok(Answer {
        name: name.to_owned(),
        seen: peer.ip(),
        from: SocketAddr::new(from.ip().to_canonical(), from.port()),
    })
}

/// Bytes in which no stretch repeats nearby, so that lost and swapped ones are noticed.
pub fn pattern(length: usize) -> Vec<u8> {
    let mut state: u32 = 0x9e37_79b9;
    let bytes = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1] | 0x80
    });
    bytes.take(length).collect()
}

/// Sends `length` bytes to an echoing server and takes them back at the same time; each must be right.
pub fn transfer(sockets: &Sockets, to: SocketAddr, length: usize) -> io::Result<()> {
    let stream = sockets.dial(to)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    // A prime number of bytes: no stretch of the stream equals another one nearby.
    let block = pattern(65_521);
    let sender = {
        let block = block.clone();
        std::thread::spawn(move || send_all(&stream, &block, length))
    };
    let mut got = vec![0; block.len()];
    let mut left = length;
    while left > 0 {
        let part = left.min(block.len());
        reader.read_exact(&mut got[..part])?;
        if got[..part] != block[..part] {
            return Err(io::Error::other(format!(
                "wrong bytes, {left} before the end"
            )));
        }
        left -= part;
    }
    sender.join().unwrap()
}

fn send_all(mut stream: &TcpStream, block: &[u8], length: usize) -> io::Result<()> {
    let mut left = length;
    while left > 0 {
        let part = left.min(block.len());
        stream.write_all(&block[..part])?;
        left -= part;
    }
    Ok(())
}

/// An HTTP server's whole response to GET.
pub fn get(sockets: &Sockets, to: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = sockets.dial(to)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
