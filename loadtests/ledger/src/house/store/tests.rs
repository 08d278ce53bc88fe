//! Against real servers; skipped where Redis is not installed.

use super::*;

const SOON: Duration = Duration::from_secs(60);

/// A folder that is removed in the end; none where Redis is not installed.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Option<Self> {
        let installed = std::process::Command::new("redis-server")
            .arg("--version")
            .output();
        if installed.is_err() {
            println!("skipped: redis-server is not installed");
            return None;
        }
        let name = format!("ledger-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Some(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

async fn set(server: &Server, name: &str) {
    let said = server.ask(&["SET", name, "x"]).await.unwrap();
    assert!(said.starts_with("+OK"), "{said}");
}

async fn has(server: &Server, name: &str) -> bool {
    server.ask(&["GET", name]).await.unwrap().starts_with("$1")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_redis_comes_back_with_all_it_acknowledged() {
    let Some(folder) = Folder::new("redis") else {
        return;
    };
    let mut store = Store::start(StoreKind::Redis, &folder.0).await.unwrap();
    let url = store.configuration(&folder.0);
    assert!(url.contains("redis://127.0.0.1:"), "{url}");
    for name in ["a", "b", "c"] {
        set(&store.nodes[0], name).await;
    }
    store.kill(&mut Random::new(1)).await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(has(&store.nodes[0], name).await, "{name}");
    }
}

/// What the primary acknowledged alone is gone after a failover, and only that.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_loses_a_tail_that_was_acknowledged() {
    let Some(folder) = Folder::new("sentinel") else {
        return;
    };
    let mut store = Store::start(StoreKind::Sentinel, &folder.0).await.unwrap();
    let (primary, replica) = store.roles().await.unwrap();
    let leader = store.nodes[primary].port;
    set(&store.nodes[primary], "before").await;
    while !has(&store.nodes[replica], "before").await {
        sleep(PAUSE).await;
    }
    let writing = tokio::spawn(async move {
        let mut written = 0;
        while crate::house::redis::ask(leader, &["SET", &format!("n{written}"), "x"])
            .await
            .is_ok_and(|said| said.starts_with("+OK"))
        {
            written += 1;
        }
        written
    });
    store.fail_over(&mut Random::new(2)).await.unwrap();
    let written: usize = writing.await.unwrap();
    let heir = &store.nodes[replica];
    assert_eq!(store.role(replica).await, Some(true));
    assert!(has(heir, "before").await);
    assert!(written > 0);
    assert!(!has(heir, &format!("n{}", written - 1)).await);
    // the one that was killed follows in the end, and the next failover is possible
    let again = async {
        while !store.can_fail_over().await {
            sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(SOON, again).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_three_comes_together() {
    let Some(folder) = Folder::new("cluster") else {
        return;
    };
    let mut store = Store::start(StoreKind::Cluster, &folder.0).await.unwrap();
    assert_eq!(store.nodes.len(), 3);
    let of = |number: usize| ["a", "b", "c", "d"].map(|key| format!("{{{number}}}{key}"));
    let names: Vec<String> = (0..30).flat_map(of).collect();
    for name in &names {
        for node in &store.nodes {
            let said = node.ask(&["SET", name, "x"]).await.unwrap();
            assert!(
                said.starts_with("+OK") || said.starts_with("-MOVED"),
                "{said}"
            );
        }
    }
    store.move_slots(&mut Random::new(3)).await.unwrap();
    for name in &names {
        let mut found = 0;
        for node in &store.nodes {
            found += usize::from(has(node, name).await);
        }
        assert_eq!(found, 1, "{name}");
    }
    store.kill(&mut Random::new(3)).await.unwrap();
    let whole = async {
        while !store.cluster_is_whole().await {
            sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(SOON, whole).await.unwrap();
}
