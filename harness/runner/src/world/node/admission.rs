//! Admits the node agents that prove that they belong to the run.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::channel::{self, Heartbeat, Incoming};
use super::node::Node;
use super::roster::{Roster, printable};
use crate::world::control_server::{HELLO_TIMEOUT, token};
use crate::world::frame::{read_frame_within, write_frame};
use allranks_protocol::{FromNode, MAX_GREETING, NODE_VERSION, ToNode, Welcome};

/// Number of connections that are not admitted yet, at a time.
const MAX_UNAUTHENTICATED: usize = 256;
/// Time without anything to send after which an end sends a heartbeat.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(1);

/// Accepts connections for ever.
pub async fn accept(listener: TcpListener, roster: Arc<Roster>) {
    let unauthenticated = Arc::new(Semaphore::new(MAX_UNAUTHENTICATED));
    // Connections end with this task.
    let mut connections = JoinSet::new();
    while let Ok(place) = Arc::clone(&unauthenticated).acquire_owned().await {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, peer)) => {
                let roster = Arc::clone(&roster);
                connections.spawn(async move {
                    let admitted = timeout(HELLO_TIMEOUT, admit(&roster, stream, peer)).await;
                    drop(place);
                    let why = match admitted {
                        Ok(Ok((node, incoming))) => {
                            serve(&roster, &node, incoming).await;
                            return;
                        }
                        Ok(Err(why)) => why,
                        Err(_) => "it did not name itself in time".to_owned(),
                    };
                    roster.notify(format!("refused a connection from {peer}: {why}"));
                });
            }
            // For instance no file descriptors are left: other connections will close some.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// An admitted node, and what comes from its agent.
type Admitted = (Arc<Node>, mpsc::UnboundedReceiver<Incoming<FromNode>>);

/// Makes the TLS connection with an agent and enters it in the roster; returns its node.
///
/// # Errors
/// The reason for which the agent is not admitted.
async fn admit(roster: &Roster, stream: TcpStream, peer: SocketAddr) -> Result<Admitted, String> {
    let _ = stream.set_nodelay(true);
    let mut stream = roster
        .key
        .accept(stream)
        .await
        .map_err(|error| format!("no TLS with this run's key ({error})"))?;
    let nonce = token().map_err(|error| error.to_string())?;
    let challenge = ToNode::Challenge {
        version: NODE_VERSION,
        nonce: nonce.clone(),
    };
    let broken = |error: io::Error| error.to_string();
    write_frame(&mut stream, &challenge, &[])
        .await
        .map_err(broken)?;
    let frame = read_frame_within::<FromNode>(&mut stream, MAX_GREETING, 0).await;
    let header = frame.map_err(|error| error.to_string())?.header;
    let FromNode::Join(join) = header else {
        return Err("it does not join".to_owned());
    };
    let entered = roster.enter(&join, &nonce);
    let (place, name) = match entered {
        Ok(entered) => entered,
        Err(reason) => {
            let refused = ToNode::Refused {
                reason: reason.clone(),
            };
            let _ = write_frame(&mut stream, &refused, &[]).await;
            let host = printable(&join.facts.host);
            return Err(format!("{reason} (it calls itself {host})"));
        }
    };
    let heartbeat = Heartbeat {
        period: HEARTBEAT_PERIOD.min(roster.settings.lost_after / 4),
        timeout: roster.settings.lost_after,
    };
    let welcome = ToNode::Welcome(Welcome {
        name: name.clone(),
        nodes: roster.settings.count,
        driver: roster.driver.clone(),
        import_patience_s: roster.import_patience.as_secs(),
        beat_ms: heartbeat.period.as_millis() as u64,
        patience_ms: heartbeat.timeout.as_millis() as u64,
    });
    if let Err(error) = write_frame(&mut stream, &welcome, &[]).await {
        roster.leave(place);
        return Err(error.to_string());
    }
    let (outbox, incoming) = channel::open(stream, || ToNode::Beat, heartbeat);
    let node = Arc::new(Node::new(name, join.facts, outbox));
    roster.fill(place, &node, peer);
    Ok((node, incoming))
}

/// Takes what an admitted agent sends, until its connection ends.
async fn serve(
    roster: &Roster,
    node: &Node,
    mut incoming: mpsc::UnboundedReceiver<Incoming<FromNode>>,
) {
    let why = loop {
        match incoming.recv().await {
            Some(Incoming::Frame(frame)) => {
                if let Err(why) = node.handle_frame(frame) {
                    break why;
                }
            }
            Some(Incoming::Over(why)) => break why,
            None => break "its connection ended".to_owned(),
        }
    };
    node.lose(&why);
    roster.changed.send_replace(());
}
