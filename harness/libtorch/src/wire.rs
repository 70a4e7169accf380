//! Frames over a socket: the driver's end of `harness/doc/reference/protocol.md`, §2. One thread receives, any may send.
//!
//! The frames themselves are [`allranks_protocol`]'s. Large payloads go straight from the socket into a tensor's memory
//! and back.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};

use allranks_protocol::{MAX_HEADER, MAX_PAYLOAD};
use rustix::net::sockopt;

/// Frames up to this size are joined and sent in one piece.
const JOIN: usize = 64 << 10;

/// One end of a connection to the harness.
#[derive(Debug)]
pub struct Wire {
    sender: Sender,
    reader: BufReader<File>,
}

/// The sending half of a connection, shared by threads; each frame is sent whole.
#[derive(Clone, Debug)]
pub struct Sender(Arc<Mutex<File>>);

impl Wire {
    /// Dials `unix:/path`, `unix:@name` (Linux's abstract names) or `tcp:host:port`, once.
    ///
    /// # Errors
    /// The address is none of these, or nothing listens there.
    pub fn connect(address: &str) -> io::Result<Self> {
        let (kind, place) = address.split_once(':').unwrap_or((address, ""));
        let socket: OwnedFd = match kind {
            "unix" => match place.strip_prefix('@') {
                Some(name) => {
                    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?.into()
                }
                None => UnixStream::connect(place)?.into(),
            },
            "tcp" => {
                let stream = TcpStream::connect(place)?;
                stream.set_nodelay(true)?;
                // A harness whose host vanishes sends no FIN: probe it every ten seconds, close after a minute.
                let ten = std::time::Duration::from_secs(10);
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, ten)?;
                sockopt::set_tcp_keepintvl(&stream, ten)?;
                sockopt::set_tcp_keepcnt(&stream, 6)?;
                stream.into()
            }
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "ALLRANKS_CONTROL is neither unix:/path nor tcp:host:port: {address:?}"
                    ),
                ));
            }
        };
        let socket = File::from(socket);
        let reader = BufReader::with_capacity(JOIN, socket.try_clone()?);
        let sender = Sender(Arc::new(Mutex::new(socket)));
        Ok(Self { sender, reader })
    }

    /// Waits for the next frame: its header, and the length of its payload, to be read by [`Self::read_into`].
    ///
    /// # Errors
    /// The connection is closed, or what comes is no frame.
    pub fn receive(&mut self) -> io::Result<(Vec<u8>, u64)> {
        let mut front = [0; 12];
        self.reader.read_exact(&mut front)?;
        let (header, payload) = front.split_at(4);
        let header = u32::from_le_bytes(header.try_into().unwrap_or_default()) as usize;
        let payload = u64::from_le_bytes(payload.try_into().unwrap_or_default());
        if header > MAX_HEADER || payload > MAX_PAYLOAD {
            return Err(garbage(format!(
                "not a frame: it claims a header of {header} and a payload of {payload} bytes"
            )));
        }
        let mut bytes = vec![0; header];
        self.reader.read_exact(&mut bytes)?;
        Ok((bytes, payload))
    }

    /// Fills a part of the payload's destination.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn read_into(&mut self, part: &mut [u8]) -> io::Result<()> {
        self.reader.read_exact(part)
    }

    /// Returns true if a frame may be waiting that has been read from the socket already.
    #[must_use]
    pub fn has_buffered(&self) -> bool {
        !self.reader.buffer().is_empty()
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn send<'a>(
        &self,
        header: &[u8],
        payload: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> io::Result<()> {
        self.sender.send(header, payload)
    }

    /// Returns the sending half, for another thread.
    #[must_use]
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Returns another handle of the same connection, to watch it with.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn watched(&self) -> io::Result<File> {
        self.reader.get_ref().try_clone()
    }
}

impl Sender {
    /// Sends one frame.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn send<'a>(
        &self,
        header: &[u8],
        payload: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> io::Result<()> {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let length: usize = payload.clone().map(<[u8]>::len).sum();
        let mut front = Vec::with_capacity(12 + header.len() + length.min(JOIN));
        front.extend((header.len() as u32).to_le_bytes());
        front.extend((length as u64).to_le_bytes());
        front.extend(header);
        if length <= JOIN {
            for part in payload {
                front.extend(part);
            }
            return socket.write_all(&front);
        }
        socket.write_all(&front)?;
        for part in payload {
            socket.write_all(part)?;
        }
        Ok(())
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.get_ref().as_fd()
    }
}

/// Makes the error for input that breaks the protocol.
pub fn garbage(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}
