//! Which connections are admitted as agents, and which are refused.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::credentials::{Credentials, proof};
use super::engine::Engine;
use super::nodes::Nodes;
use super::nodes_settings::NodesSettings;
use super::tls;
use crate::world::Driver;
use crate::world::frame::{read_frame, write_frame};
use allranks_protocol::{FromNode, Join, NODE_VERSION, NodeFacts, ToNode};

const LONG: Duration = Duration::from_secs(60);

type Notices = mpsc::UnboundedReceiver<String>;

fn listen(folder: &Path, count: usize) -> (Nodes, Credentials, Notices) {
    let (sender, notices) = mpsc::unbounded_channel();
    let settings = NodesSettings {
        engine: Engine::Attached,
        command: None,
        to_join: String::new(),
        engine_log: folder.join("engine.log"),
        count,
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        credentials: folder.join("credentials"),
        join_patience: LONG,
        lost_after: LONG,
    };
    let path = settings.credentials.clone();
    let driver = Driver::Command(vec!["none".to_owned()]);
    let nodes = Nodes::listen(settings, &driver, LONG, Some(sender)).unwrap();
    (nodes, Credentials::read(&path).unwrap(), notices)
}

async fn dial(credentials: &Credentials) -> TcpStream {
    TcpStream::connect(&credentials.addresses[0]).await.unwrap()
}

/// Connects, and returns the connection and the nonce of its challenge.
async fn challenged(credentials: &Credentials) -> (TlsStream<TcpStream>, String) {
    let stream = dial(credentials).await;
    let mut stream = tls::connect(stream, &credentials.fingerprint)
        .await
        .unwrap();
    let frame = read_frame::<ToNode>(&mut stream).await.unwrap();
    let ToNode::Challenge { nonce, .. } = frame.header else {
        panic!("{frame:?}");
    };
    (stream, nonce)
}

/// What an agent says that has this run's name and this proof.
fn joining(run: &str, proof: String) -> Join {
    Join {
        version: NODE_VERSION,
        run: run.to_owned(),
        proof,
        facts: NodeFacts {
            host: "h".to_owned(),
            allranks: env!("CARGO_PKG_VERSION").to_owned(),
            address: "127.0.0.1".to_owned(),
            ..NodeFacts::default()
        },
    }
}

/// Says this on a connection, and returns the answer.
async fn answer(stream: &mut TlsStream<TcpStream>, join: Join) -> ToNode {
    write_frame(stream, &FromNode::Join(Box::new(join)), &[])
        .await
        .unwrap();
    read_frame::<ToNode>(stream).await.unwrap().header
}

async fn told(notices: &mut Notices, words: &str) {
    let notice = timeout(LONG, notices.recv()).await.unwrap().unwrap();
    assert!(notice.contains(words), "`{words}` is not in: {notice}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_needs_the_token_of_this_run_for_each_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (nodes, credentials, mut notices) = listen(folder.path(), 1);
    let (run, token) = (credentials.run.as_str(), credentials.token.as_str());
    let refused = async |run: &str, proof: &dyn Fn(&str) -> String| {
        let (mut stream, nonce) = challenged(&credentials).await;
        match answer(&mut stream, joining(run, proof(&nonce))).await {
            ToNode::Refused { reason } => reason,
            other => panic!("{other:?}"),
        }
    };
    let wrong = refused(run, &|nonce| proof("another token", nonce)).await;
    assert!(wrong.contains("does not have the run's token"), "{wrong}");
    told(&mut notices, "does not have the run's token").await;
    let other = refused("another run", &|nonce| proof(token, nonce)).await;
    assert!(other.contains("another run"), "{other}");
    told(&mut notices, "another run").await;
    // What a good agent said on its connection is worth nothing on the next.
    let (mut good, nonce) = challenged(&credentials).await;
    let recorded = proof(token, &nonce);
    let replayed = refused(run, &|_| recorded.clone()).await;
    assert!(
        replayed.contains("repeats what another connection said"),
        "{replayed}"
    );
    told(&mut notices, "repeats what another connection said").await;
    let welcome = answer(&mut good, joining(run, recorded)).await;
    assert!(
        matches!(&welcome, ToNode::Welcome(welcome) if welcome.name == "h"),
        "{welcome:?}"
    );
    told(&mut notices, "node 1 of 1 is here: h at 127.0.0.1").await;
    // The token alone does not make room for one more, nor does an engine that started another number.
    let (mut lone, nonce) = challenged(&credentials).await;
    let mut join = joining(run, proof(token, &nonce));
    (join.facts.place, join.facts.count) = (Some(0), Some(3));
    let lone = answer(&mut lone, join).await;
    assert!(
        matches!(&lone, ToNode::Refused { reason } if reason.contains("started 3 agent(s)")),
        "{lone:?}"
    );
    told(&mut notices, "started 3 agent(s)").await;
    let late = refused(run, &|nonce| proof(token, nonce)).await;
    assert!(late.contains("all 1 nodes of the run have come"), "{late}");
    told(&mut notices, "all 1 nodes of the run have come").await;
    let path = folder.path().join("credentials");
    assert!(path.exists());
    drop(nodes);
    assert!(!path.exists(), "the secret is left behind");
    // The agent's connection ends with the run.
    let ended = timeout(LONG, async {
        while read_frame::<ToNode>(&mut good).await.is_ok() {}
    });
    ended.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tls_or_with_another_key_there_is_no_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (_nodes, credentials, mut notices) = listen(folder.path(), 1);
    let mut plain = dial(&credentials).await;
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = timeout(LONG, plain.read_to_end(&mut said)).await.unwrap();
    assert!(
        !String::from_utf8_lossy(&said).contains("challenge"),
        "{said:?}"
    );
    told(&mut notices, "no TLS with this run's key").await;
    let another = "0".repeat(64);
    let stream = dial(&credentials).await;
    assert!(
        tls::connect(stream, &another).await.is_err(),
        "the key was not compared"
    );
    told(&mut notices, "no TLS with this run's key").await;
}
