//! Users, passwords and certificates (EL-26).

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use vestibule_testkit::redis::{RedisServer, free_port};

use super::*;

const USER: [&str; 10] = [
    "--user",
    "gateway",
    "on",
    ">hunter2",
    "~vestibule:*",
    "&vestibule:*",
    "+@all",
    "-@dangerous",
    "-@admin",
    "--requirepass",
];

/// T52: the gateway needs a user of its own that may touch nothing else.
#[tokio::test]
async fn t52_a_user_with_a_password_who_may_use_our_names_only() {
    let user: Vec<&str> = USER.iter().copied().chain(["other"]).collect();
    let Some(server) = RedisServer::start_with(&user) else {
        return;
    };
    let url = server.url().replace("redis://", "redis://gateway:hunter2@");
    let redis = connect(&url).await;
    echo(&redis, "x").await.unwrap();
    until_hints_come(&redis).await;
    let clock = Arc::new(vestibule_terms::clock::SystemClock);
    let fleet = crate::redis::RedisFleet::open(redis.clone(), clock);
    let lives = async || crate::Fleet::may_act(&*fleet);
    until("the fleet works with these rights", lives).await;
}

#[tokio::test]
async fn t69_a_wrong_password_is_said_and_not_shown() {
    let Some(server) = RedisServer::start_with(&["--requirepass", "right"]) else {
        return;
    };
    let url = server.url().replace("redis://", "redis://:hunter2@");
    let told = Arc::<Told>::default();
    let redis = Redis::open(patient(&url), told.alarm()).unwrap();
    until("it was refused", async || !told.all().is_empty()).await;
    let error = echo(&redis, "x").await.unwrap_err();
    let shown = format!(
        "{:?} {error} {error:?} {redis:?} {:?}",
        told.all(),
        patient(&url)
    );
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(matches!(&told.all()[..], [RedisEvent::Down(_)]), "{shown}");
    let url = server.url().replace("redis://", "redis://:right@");
    connect(&url).await;
}

/// An authority, and files of a server that it vouches for.
struct Authority {
    pem: String,
    folder: PathBuf,
}

impl Authority {
    fn new() -> Self {
        let name = format!("vestibule-redis-tls-{}", ReplicaId::random());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        std::fs::write(folder.join("cert"), certificate.pem()).unwrap();
        std::fs::write(folder.join("key"), key.serialize_pem()).unwrap();
        Self {
            pem: authority.pem(),
            folder,
        }
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

#[tokio::test]
async fn el_26_tls_to_a_server_that_our_authority_vouches_for() {
    let authority = Authority::new();
    let port = free_port().to_string();
    let Some(_server) = RedisServer::start_with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &authority.file("cert"),
        "--tls-key-file",
        &authority.file("key"),
        "--tls-auth-clients",
        "no",
    ]) else {
        return;
    };
    let settings = |host: &str, ca: &str| Settings {
        ca: Some(Bytes::copy_from_slice(ca.as_bytes())),
        ..patient(&format!("rediss://{host}:{port}"))
    };
    let redis = Redis::open(settings("localhost", &authority.pem), Arc::new(|_event| {})).unwrap();
    timeout(PATIENCE, redis.connected()).await.unwrap();
    echo(&redis, "x").await.unwrap();
    until_hints_come(&redis).await;

    let strange = Authority::new();
    for (host, ca) in [("127.0.0.1", &authority.pem), ("localhost", &strange.pem)] {
        let told = Arc::<Told>::default();
        let _redis = Redis::open(settings(host, ca), told.alarm()).unwrap();
        until("it was refused", async || !told.all().is_empty()).await;
        assert!(matches!(&told.all()[..], [RedisEvent::Down(_)]), "{host}");
    }
    let nonsense = Redis::open(settings("localhost", "nonsense"), Arc::new(|_event| {}));
    assert!(matches!(nonsense, Err(StoreError::Url(_))), "{nonsense:?}");
}
