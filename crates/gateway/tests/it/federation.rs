//! Several upstreams behind one server: whole lists in one order, names and URIs that lead back,
//! and no upstream that spoils the others.

use std::net::TcpListener;

use serde_json::{Value, json};
use vestibule_testkit::{Answer, Recorded, RecordingUpstream};

use crate::harness::Gateway;
use crate::peers::{
    Session, legacy_upstream, listed, modern, modern_upstream, notification, streams, tenant,
    text_result,
};

async fn ask(gateway: &Gateway, target: &str, method: &str, params: &Value) -> Value {
    let answer = gateway.ask(modern(target, &json!(1), method, params)).await;
    answer.answer()
}

fn names(answer: &Value, list: &str) -> Vec<String> {
    let items = answer["result"][list].as_array();
    let key = if list == "resources" { "uri" } else { "name" };
    items
        .unwrap_or_else(|| panic!("no {list}: {answer}"))
        .iter()
        .map(|item| item[key].as_str().unwrap().to_owned())
        .collect()
}

async fn tools(gateway: &Gateway, target: &str) -> Vec<String> {
    names(
        &ask(gateway, target, "tools/list", &json!({})).await,
        "tools",
    )
}

/// Lists these tools; a call of one answers with its name.
fn offering(tools: &'static [&'static str]) -> impl Fn(&Recorded) -> Option<Answer> {
    move |request| {
        if request.rpc_method() == "tools/call" {
            let name = request.json()["params"]["name"]
                .as_str()
                .unwrap()
                .to_owned();
            let mut result = text_result(&name);
            result["resultType"] = json!("complete");
            return Some(Answer::result(request, &result));
        }
        listed(request, tools)
    }
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" } })
}

/// A list page by page: `pages` by cursor, each with its next one.
fn paged(request: &Recorded, pages: &[(Option<&str>, Value, Value)]) -> Option<Answer> {
    if request.rpc_method() != "tools/list" {
        return None;
    }
    let json = request.json();
    let cursor = json["params"]["cursor"].as_str();
    let page = pages.iter().find(|(of, _, _)| *of == cursor);
    let Some((_, tools, next)) = page else {
        return Some(Answer::error(request, 200, -32602, "bad cursor"));
    };
    let mut result =
        json!({ "tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "public" });
    if *next != json!("absent") {
        result["nextCursor"] = next.clone();
    }
    Some(Answer::result(request, &result))
}

/// Case 20, PAG-05, XT-304: an upstream whose cursor never moves is asked no further; each of its
/// items is listed once.
#[tokio::test]
async fn case_20_a_cursor_that_stands_still_ends_the_list() {
    let upstream = modern_upstream(json!({ "tools": {} }), |request| {
        let page = json!([tool("a"), tool("b")]);
        paged(
            request,
            &[
                (None, page.clone(), json!("x")),
                (Some("x"), page, json!("x")),
            ],
        )
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    assert_eq!(tools(&gateway, "/mcp/t").await, ["up__a", "up__b"]);
    assert!(upstream.calls("tools/list").len() <= 3);
}

/// Case 21, PAG-03, XT-303: the empty string is a cursor like any other, null is none; on a federated
/// server and page by page on a transparent one.
#[tokio::test]
async fn case_21_an_empty_cursor_is_a_cursor() {
    let pages = |request: &Recorded| {
        paged(
            request,
            &[
                (None, json!([tool("a")]), json!("")),
                (Some(""), json!([tool("b")]), json!("next")),
                (Some("next"), json!([tool("c")]), Value::Null),
            ],
        )
    };
    let new = modern_upstream(json!({ "tools": {} }), pages).await;
    let old = legacy_upstream(json!({ "tools": {} }), pages).await;
    let gateway = Gateway::start(&tenant(&[("new", &new.url()), ("old", &old.url())]));
    let all = ["new__a", "new__b", "new__c", "old__a", "old__b", "old__c"];
    assert_eq!(tools(&gateway, "/mcp/t").await, all);
    for target in ["/mcp/t/new", "/mcp/t/old"] {
        let mut params = json!({});
        let mut seen = Vec::new();
        for _ in 0..3 {
            let answer = ask(&gateway, target, "tools/list", &params).await;
            seen.extend(names(&answer, "tools"));
            let next = answer["result"].get("nextCursor").cloned();
            params = json!({ "cursor": next });
            if let Some(next) = next.as_ref().and_then(Value::as_str) {
                assert!(
                    !["", "next"].contains(&next),
                    "PAG-04: the upstream's cursor stays behind"
                );
            }
        }
        assert_eq!(seen, ["a", "b", "c"], "{target}");
    }
}

/// TOL-05, PAG-02, XT-300, XT-302, XT-311: many tools of several upstreams come sorted, page by page, none twice,
/// and equal lists have equal cursors; a cursor that is no such thing, or for another list, is refused.
#[tokio::test]
async fn xt_300_long_lists_are_paged_in_order() {
    fn many(request: &Recorded) -> Option<Answer> {
        let tools: Vec<_> = (0..130).rev().map(|n| tool(&format!("n{n:03}"))).collect();
        paged(request, &[(None, json!(tools), json!("absent"))])
    }
    let a = modern_upstream(json!({ "tools": {}, "prompts": {} }), many).await;
    let b = legacy_upstream(json!({ "tools": {} }), many).await;
    let gateway = Gateway::start(&tenant(&[("a", &a.url()), ("b", &b.url())]));
    let mut all = Vec::new();
    let mut cursors = Vec::new();
    let mut params = json!({});
    loop {
        let answer = ask(&gateway, "/mcp/t", "tools/list", &params).await;
        all.extend(names(&answer, "tools"));
        let Some(next) = answer["result"].get("nextCursor") else {
            break;
        };
        let again = ask(&gateway, "/mcp/t", "tools/list", &params).await;
        assert_eq!(again["result"]["nextCursor"], *next, "XT-514");
        params = json!({ "cursor": next });
        cursors.push(next.as_str().unwrap().to_owned());
    }
    let expected: Vec<_> = ["a", "b"]
        .iter()
        .flat_map(|up| (0..130).map(move |n| format!("{up}__n{n:03}")))
        .collect();
    assert_eq!(all, expected);
    assert_eq!(cursors.len(), 2);
    let session = Session::open(&gateway, "/mcp/t", json!({})).await;
    let first = session.call(2, "tools/list", json!({})).await;
    assert_eq!(
        names(&first, "tools"),
        expected[..100],
        "one catalog for both eras"
    );
    let mut bent = cursors[0].clone();
    bent.pop();
    for (target, method, cursor) in [
        ("/mcp/t", "tools/list", bent.as_str()),
        ("/mcp/t", "tools/list", ""),
        ("/mcp/t", "prompts/list", cursors[0].as_str()),
        ("/mcp/t/a", "tools/list", cursors[0].as_str()),
    ] {
        let answer = ask(&gateway, target, method, &json!({ "cursor": cursor })).await;
        assert_eq!(
            answer["error"]["code"], -32602,
            "{target} {method} {cursor}"
        );
    }
}

/// A port where nobody listens.
fn closed_port() -> String {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    format!("http://127.0.0.1:{port}/mcp")
}

/// Case 23, LIF-02: a dead, a silent and a broken upstream leave the healthy one alone; when all of
/// them fail the list is an error, never empty.
#[tokio::test]
async fn case_23_dead_upstreams_do_not_spoil_the_list() {
    let good = modern_upstream(json!({ "tools": {} }), offering(&["x"])).await;
    let silent = RecordingUpstream::start(|_| Answer::Hang).await.unwrap();
    let broken = RecordingUpstream::start(|_| Answer::text(500, "no"))
        .await
        .unwrap();
    let closed = closed_port();
    let all = [
        ("good", good.url()),
        ("silent", silent.url()),
        ("broken", broken.url()),
        ("closed", closed),
    ];
    let upstreams: String = all
        .iter()
        .map(|(id, url)| {
            let idle = if *id == "good" { 20 } else { 1 };
            format!("      {id}: {{ url: \"{url}\", timeouts: {{ connect: 1s, idle: {idle}s, total: 20s }} }}\n")
        })
        .collect();
    let gateway = Gateway::start(&format!(
        "  t:\n    auth: none\n    policy: allow_all\n    upstreams:\n{upstreams}    servers:\n      default: {{ upstreams: [good, silent, broken, closed] }}\n      bad: {{ upstreams: [broken, closed] }}\n"
    ));
    assert_eq!(tools(&gateway, "/mcp/t").await, ["good__x"]);
    let answer = ask(
        &gateway,
        "/mcp/t",
        "tools/call",
        &json!({ "name": "good__x" }),
    )
    .await;
    assert_eq!(answer["result"]["content"][0]["text"], "x");
    let answer = ask(
        &gateway,
        "/mcp/t",
        "tools/call",
        &json!({ "name": "closed__x" }),
    )
    .await;
    assert_eq!(answer["error"]["code"], -31001, "case 25: {answer}");
    let answer = ask(&gateway, "/mcp/t/bad", "tools/list", &json!({})).await;
    assert_eq!(answer["error"]["code"], -31001, "{answer}");
    // a handshake waits for nobody for long and does not fail (XT-011)
    let session = Session::open(&gateway, "/mcp/t/bad", json!({})).await;
    assert!(session.opened["capabilities"].is_object());
}

/// Case 25, CCH-11, XT-305: an upstream that has just gone keeps its names; a call of one says that it is
/// unavailable.
#[tokio::test]
async fn case_25_a_blip_keeps_the_names() {
    let upstream = modern_upstream(json!({ "tools": {} }), |request| {
        (request.rpc_method() == "tools/list").then(|| {
            let tools = json!([tool("x")]);
            Answer::result(request, &json!({ "tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "public" }))
        })
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    assert_eq!(tools(&gateway, "/mcp/t").await, ["up__x"]);
    drop(upstream);
    let answer = ask(&gateway, "/mcp/t", "tools/list", &json!({})).await;
    assert_eq!(names(&answer, "tools"), ["up__x"]);
    assert_eq!(answer["result"]["ttlMs"], 0);
    let answer = ask(
        &gateway,
        "/mcp/t",
        "tools/call",
        &json!({ "name": "up__x" }),
    )
    .await;
    assert_eq!(answer["error"]["code"], -31001, "{answer}");
}

/// Case 26, TOL-01, JSC-04: a tool with a bad schema is dropped alone, in both eras and both kinds
/// of server; what is unusual and legal stays as it is.
#[tokio::test]
async fn case_26_a_bad_tool_is_dropped_alone() {
    fn mixed(request: &Recorded) -> Option<Answer> {
        let tools = json!([
            { "name": "bad-type", "inputSchema": { "type": "int" } },
            { "name": "no-schema" },
            { "name": 7, "inputSchema": { "type": "object" } },
            { "inputSchema": { "type": "object" } },
            "no tool at all",
            { "name": "good", "inputSchema": { "type": "object", "anyOf": [{ "required": ["a"] }] } },
        ]);
        paged(request, &[(None, tools, json!("absent"))])
    }
    let new = modern_upstream(json!({ "tools": {} }), mixed).await;
    let old = legacy_upstream(json!({ "tools": {} }), mixed).await;
    let gateway = Gateway::start(&tenant(&[("new", &new.url()), ("old", &old.url())]));
    assert_eq!(tools(&gateway, "/mcp/t").await, ["new__good", "old__good"]);
    assert_eq!(tools(&gateway, "/mcp/t/new").await, ["good"]);
    assert_eq!(tools(&gateway, "/mcp/t/old").await, ["good"]);
}

/// Case 28: a server without upstreams answers both eras with empty lists.
#[tokio::test]
async fn case_28_no_upstreams_are_empty_lists() {
    let gateway = Gateway::start("  t:\n    auth: none\n    policy: allow_all\n");
    let session = Session::open(&gateway, "/mcp/t", json!({})).await;
    assert!(session.opened["serverInfo"]["name"].is_string());
    for (id, (method, list)) in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = session.call(id + 2, method, json!({})).await;
        assert_eq!(answer["result"][list], json!([]), "{method}: {answer}");
        let answer = ask(&gateway, "/mcp/t", method, &json!({})).await;
        assert_eq!(answer["result"][list], json!([]), "{method}: {answer}");
    }
    let answer = ask(&gateway, "/mcp/t", "server/discover", &json!({})).await;
    assert_eq!(answer["result"]["resultType"], "complete");
}

/// Case 29, TOL-02, XT-370: names that are too long or have other characters are cut by a stable
/// rule and lead back by table, also when they look like another upstream's.
#[tokio::test]
async fn case_29_long_and_odd_names_are_shortened_and_lead_back() {
    const LONG: &str =
        "an_eighty_character_name_that_goes_on_and_on_until_no_model_api_would_take_it_xx";
    const ODD: &[&str] = &[LONG, "dotted.name", "dotted_name", "größe", "b__x", "plain"];
    let upstream = modern_upstream(json!({ "tools": {} }), offering(ODD)).await;
    let other = modern_upstream(json!({ "tools": {} }), offering(&["x"])).await;
    let id = "a-rather-long-identifier";
    let first = Gateway::start(&tenant(&[(id, &upstream.url()), ("b", &other.url())]));
    let second = Gateway::start(&tenant(&[("b", &other.url()), (id, &upstream.url())]));
    let listed = tools(&first, "/mcp/t").await;
    assert_eq!(
        listed,
        tools(&second, "/mcp/t").await,
        "the same in every process and order"
    );
    assert_eq!(listed.len(), ODD.len() + 1);
    let mut originals = Vec::new();
    for name in &listed {
        assert!(name.len() <= 48, "{name}");
        assert!(
            name.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'),
            "{name}"
        );
        let answer = ask(&first, "/mcp/t", "tools/call", &json!({ "name": name })).await;
        originals.push(
            answer["result"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    originals.sort();
    let mut expected: Vec<_> = ODD.iter().map(|name| (*name).to_owned()).collect();
    expected.push("x".to_owned());
    expected.sort();
    assert_eq!(originals, expected);
    assert_eq!(
        tools(&first, &format!("/mcp/t/{id}")).await.len(),
        ODD.len()
    );
}

/// Case 31, TOL-03: the same name on two upstreams is two tools, whatever the order in the file.
#[tokio::test]
async fn case_31_equal_names_are_two_tools() {
    let one = modern_upstream(json!({ "tools": {} }), offering(&["search"])).await;
    let two = legacy_upstream(json!({ "tools": {} }), offering(&["search"])).await;
    for order in [["u1", "u2"], ["u2", "u1"]] {
        let url = |id: &str| if id == "u1" { one.url() } else { two.url() };
        let urls = [url(order[0]), url(order[1])];
        let gateway = Gateway::start(&tenant(&[(order[0], &urls[0]), (order[1], &urls[1])]));
        assert_eq!(
            tools(&gateway, "/mcp/t").await,
            ["u1__search", "u2__search"]
        );
        let before = two.calls("tools/call").len();
        ask(
            &gateway,
            "/mcp/t",
            "tools/call",
            &json!({ "name": "u2__search" }),
        )
        .await;
        assert_eq!(two.calls("tools/call").len(), before + 1);
        assert!(one.calls("tools/call").is_empty());
    }
}

/// Cases 33, 34, XT-372, XT-373, XT-374, XT-375, XT-376, XT-383: every URI that is handed out leads back, byte for byte,
/// whatever its scheme; text, structured content and arguments are left alone.
#[tokio::test]
async fn case_33_34_every_uri_that_is_handed_out_leads_back() {
    const URIS: &[&str] = &[
        "file:///a%20b?q=1#frag",
        "db://t/a%2Fb?q=%2F",
        "ui://prefab/r.html",
        "ui:///nohost",
        "git+ssh://h/x",
        "custom:opaque/é",
        "https://docs.example/a?b=c",
        "HTTP://Docs.Example/",
    ];
    let upstream = modern_upstream(json!({ "tools": {}, "resources": {}, "prompts": {} }), |request| {
        let params = request.json()["params"].clone();
        let mut result = match request.rpc_method().as_str() {
            "resources/list" => {
                let all: Vec<_> = URIS.iter().map(|uri| json!({ "uri": uri, "name": uri })).collect();
                json!({ "resources": all })
            }
            "resources/templates/list" => json!({ "resourceTemplates": [{ "uriTemplate": "db://{table}/{+rest}{?q*}", "name": "t" }] }),
            "resources/read" => json!({ "contents": [{ "uri": params["uri"], "text": params["uri"] }] }),
            "tools/list" => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" }, "_meta": { "ui": { "resourceUri": "ui://prefab/r.html" }, "ui/resourceUri": "ui://prefab/r.html" } }] }),
            "tools/call" => json!({
                "content": [
                    { "type": "resource_link", "uri": "demo://1", "name": "n" },
                    { "type": "resource", "resource": { "uri": "demo://2", "text": "see demo://1" } },
                    { "type": "text", "text": "demo://1" },
                ],
                "structuredContent": { "uri": "demo://1" },
            }),
            "prompts/list" => json!({ "prompts": [{ "name": "p" }] }),
            "prompts/get" => json!({ "messages": [{ "role": "user", "content": { "type": "resource", "resource": { "uri": "demo://3", "text": "x" } } }] }),
            _ => return None,
        };
        result["resultType"] = json!("complete");
        result["ttlMs"] = json!(0);
        result["cacheScope"] = json!("public");
        Some(Answer::result(request, &result))
    })
    .await;
    let other = modern_upstream(json!({ "resources": {} }), |request| {
        let result = match request.rpc_method().as_str() {
            "resources/list" => {
                json!({ "resources": [{ "uri": "x:1", "name": "x" }], "resultType": "complete" })
            }
            "resources/templates/list" => {
                json!({ "resourceTemplates": [], "resultType": "complete" })
            }
            _ => return None,
        };
        Some(Answer::result(request, &result))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("u1", &upstream.url()), ("u2", &other.url())]));
    let answer = ask(&gateway, "/mcp/t", "resources/list", &json!({})).await;
    let shown = names(&answer, "resources");
    assert!(
        shown.contains(&"u1+file:///a%20b?q=1#frag".to_owned()),
        "{shown:?}"
    );
    assert!(
        shown.contains(&"ui://u1.prefab/r.html".to_owned()),
        "{shown:?}"
    );
    assert!(shown.contains(&"u1+git+ssh://h/x".to_owned()), "{shown:?}");
    assert!(
        shown.contains(&"https://docs.example/a?b=c".to_owned()),
        "{shown:?}"
    );
    let read = async |uri: &str| -> (Value, String) {
        let request = modern(
            "/mcp/t",
            &json!(1),
            "resources/read",
            &json!({ "uri": uri }),
        );
        let request = if uri.is_ascii() {
            request
        } else {
            request
                .without("mcp-name")
                .field("Mcp-Name", "=?base64?dTErY3VzdG9tOm9wYXF1ZS/DqQ==?=")
        };
        let answer = gateway.ask(request).await.answer();
        assert!(answer["result"].is_object(), "{uri}: {answer}");
        let content = answer["result"]["contents"][0].clone();
        (
            content["uri"].clone(),
            content["text"].as_str().unwrap().to_owned(),
        )
    };
    let mut originals = Vec::new();
    for uri in shown.iter().filter(|uri| !uri.starts_with("u2")) {
        let (given, original) = read(uri).await;
        assert_eq!(given, json!(uri), "the same form everywhere");
        originals.push(original);
    }
    originals.sort();
    let mut expected: Vec<_> = URIS.iter().map(|uri| (*uri).to_owned()).collect();
    expected.sort();
    assert_eq!(originals, expected);

    let result = ask(
        &gateway,
        "/mcp/t",
        "tools/call",
        &json!({ "name": "u1__t" }),
    )
    .await["result"]
        .clone();
    assert_eq!(result["content"][0]["uri"], "u1+demo://1");
    assert_eq!(result["content"][1]["resource"]["uri"], "u1+demo://2");
    assert_eq!(result["content"][1]["resource"]["text"], "see demo://1");
    assert_eq!(result["content"][2]["text"], "demo://1");
    assert_eq!(result["structuredContent"], json!({ "uri": "demo://1" }));
    assert_eq!(read("u1+demo://2").await.1, "demo://2");
    let prompt = ask(
        &gateway,
        "/mcp/t",
        "prompts/get",
        &json!({ "name": "u1__p" }),
    )
    .await;
    assert_eq!(
        prompt["result"]["messages"][0]["content"]["resource"]["uri"],
        "u1+demo://3"
    );
    let listed = ask(&gateway, "/mcp/t", "tools/list", &json!({})).await;
    let meta = &listed["result"]["tools"][0]["_meta"];
    assert_eq!(
        meta,
        &json!({ "ui": { "resourceUri": "ui://u1.prefab/r.html" }, "ui/resourceUri": "ui://u1.prefab/r.html" })
    );
    let templates = ask(&gateway, "/mcp/t", "resources/templates/list", &json!({})).await;
    assert_eq!(
        templates["result"]["resourceTemplates"][0]["uriTemplate"], "u1+db://{table}/{+rest}{?q*}",
        "XT-371"
    );
    assert_eq!(read("u1+db://users/a/b?q=1").await.1, "db://users/a/b?q=1");
    // a raw URI that one upstream lists, and one that nobody knows
    assert_eq!(read("git+ssh://h/x").await.1, "git+ssh://h/x");
    let answer = ask(
        &gateway,
        "/mcp/t",
        "resources/read",
        &json!({ "uri": "nobody:1" }),
    )
    .await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

/// RSC-02, XT-384: file URIs that climb are refused, in every spelling.
#[tokio::test]
async fn rsc_02_paths_that_climb_are_refused() {
    let upstream = modern_upstream(json!({ "resources": {} }), |request| {
        (request.rpc_method() == "resources/read").then(|| Answer::text(500, "reached"))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for path in [
        "/a/../b",
        "/a/%2e%2e/b",
        "/a/%252e%252e/b",
        "/a%2f..%2fb",
        "/a/..",
        "/a%00b",
    ] {
        for (target, uri) in [
            ("/mcp/t/up", format!("file://{path}")),
            ("/mcp/t", format!("up+file://{path}")),
        ] {
            let answer = ask(&gateway, target, "resources/read", &json!({ "uri": uri })).await;
            assert_eq!(answer["error"]["code"], -32602, "{uri}: {answer}");
        }
    }
    assert!(upstream.calls("resources/read").is_empty());
}

/// XT-379, CMP-02, CMP-03: references of completions are named back for their upstream; more than a
/// hundred values are cut.
#[tokio::test]
async fn xt_379_completion_references_are_named_back() {
    let upstream = modern_upstream(json!({ "prompts": {}, "resources": {}, "completions": {} }), |request| {
        if request.rpc_method() != "completion/complete" {
            let templates = json!({ "resourceTemplates": [{ "uriTemplate": "db://{t}", "name": "t" }], "resultType": "complete" });
            return match request.rpc_method().as_str() {
                "resources/templates/list" => Some(Answer::result(request, &templates)),
                "resources/list" => Some(Answer::result(request, &json!({ "resources": [], "resultType": "complete" }))),
                _ => listed(request, &["p"]),
            };
        }
        let values: Vec<_> = (0..120).map(|n| n.to_string()).collect();
        Some(Answer::result(request, &json!({ "completion": { "values": values }, "resultType": "complete" })))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for (given, expected) in [
        (
            json!({ "type": "ref/prompt", "name": "up__p" }),
            json!({ "type": "ref/prompt", "name": "p" }),
        ),
        (
            json!({ "type": "ref/resource", "uri": "up+db://{t}" }),
            json!({ "type": "ref/resource", "uri": "db://{t}" }),
        ),
    ] {
        let params = json!({ "ref": given, "argument": { "name": "a", "value": "" } });
        let answer = ask(&gateway, "/mcp/t", "completion/complete", &params).await;
        let completion = &answer["result"]["completion"];
        assert_eq!(
            completion["values"].as_array().map(Vec::len),
            Some(100),
            "{answer}"
        );
        assert_eq!(completion["hasMore"], true);
        let sent = upstream.calls("completion/complete").pop().unwrap();
        assert_eq!(sent.json()["params"]["ref"], expected);
    }
    let params = json!({ "ref": { "type": "ref/prompt", "name": "up__q" }, "argument": { "name": "a", "value": "" } });
    let answer = ask(&gateway, "/mcp/t", "completion/complete", &params).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

/// Cases 36, 37, CAP-01, XT-012, XT-340, XT-346: what the upstreams offer and instruct is told in both eras alike, and
/// each capability that is told of works.
#[tokio::test]
async fn case_36_37_capabilities_and_instructions_are_merged() {
    let one = modern_upstream(json!({}), |request| {
        if request.rpc_method() != "server/discover" {
            return offering(&["t"])(request);
        }
        let result = json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} }, "instructions": "One: use t." });
        Some(Answer::result(request, &result))
    })
    .await;
    let two = legacy_upstream(json!({}), |request| match request.rpc_method().as_str() {
        "initialize" => {
            let result = json!({ "protocolVersion": "2025-11-25", "capabilities": { "prompts": {}, "completions": {} }, "serverInfo": { "name": "two", "version": "1" }, "instructions": "Two: ask." });
            Some(Answer::result(request, &result))
        }
        "prompts/get" => Some(Answer::result(request, &json!({ "messages": [] }))),
        "completion/complete" => Some(Answer::result(request, &json!({ "completion": { "values": [] } }))),
        _ => listed(request, &["p"]),
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("u1", &one.url()), ("u2", &two.url())]));
    let discovered = ask(&gateway, "/mcp/t", "server/discover", &json!({})).await["result"].clone();
    let session = Session::open(&gateway, "/mcp/t", json!({})).await;
    for view in [&discovered, &session.opened] {
        let capabilities = &view["capabilities"];
        for offered in ["tools", "prompts", "completions"] {
            assert!(capabilities[offered].is_object(), "{offered}: {view}");
        }
        for missing in ["resources", "logging", "tasks", "experimental"] {
            assert!(capabilities.get(missing).is_none(), "{missing}: {view}");
        }
        assert_eq!(
            view["instructions"],
            "## u1 (tools prefixed \"u1__\")\nOne: use t.\n\n## u2 (tools prefixed \"u2__\")\nTwo: ask."
        );
    }
    assert_eq!(session.opened["serverInfo"]["name"], "vestibule");
    let transparent = ask(&gateway, "/mcp/t/u1", "server/discover", &json!({})).await;
    assert_eq!(transparent["result"]["instructions"], "One: use t.");
    let complete = json!({ "ref": { "type": "ref/prompt", "name": "u2__p" }, "argument": { "name": "a", "value": "" } });
    for (method, params) in [
        ("tools/call", json!({ "name": "u1__t" })),
        ("prompts/get", json!({ "name": "u2__p" })),
        ("completion/complete", complete),
    ] {
        let answer = ask(&gateway, "/mcp/t", method, &params).await;
        assert!(answer["result"].is_object(), "{method}: {answer}");
    }
    let request = modern("/mcp/t", &json!(1), "resources/list", &json!({}));
    let answer = gateway.ask(request).await;
    let code = answer.answer()["error"]["code"].clone();
    assert_eq!((answer.status, code), (404, json!(-32601)), "STA-12");
    let answer = session.call(9, "resources/list", json!({})).await;
    assert_eq!(answer["error"]["code"], -32601);
}

/// Case 39, CCH-08, XT-323: a change that an upstream announces on its own stream invalidates its
/// list at once, whatever its lifetime was.
#[tokio::test]
async fn case_39_an_announced_change_is_seen_at_once() {
    let (opens, streams) = streams();
    let upstream = modern_upstream(json!({ "tools": { "listChanged": true } }), move |request| {
        if request.rpc_method() == "subscriptions/listen" {
            return Some(opens.answer(request));
        }
        static LISTS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        (request.rpc_method() == "tools/list").then(|| {
            let first = LISTS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
            let tools = if first { json!([tool("old")]) } else { json!([tool("new")]) };
            Answer::result(request, &json!({ "tools": tools, "resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public" }))
        })
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    assert_eq!(tools(&gateway, "/mcp/t").await, ["up__old"]);
    assert_eq!(
        tools(&gateway, "/mcp/t").await,
        ["up__old"],
        "kept as long as the upstream said"
    );
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let listen = modern("/mcp/t", &json!(1), "subscriptions/listen", &filter);
    let mut client = crate::peers::Stream::send(&gateway, listen).await;
    let (request, stream) = streams.next().await;
    let id = request.rpc_id();
    for (method, params) in [
        (
            "notifications/subscriptions/acknowledged",
            json!({ "notifications": { "toolsListChanged": true }, "_meta": { "io.modelcontextprotocol/subscriptionId": id } }),
        ),
        (
            "notifications/tools/list_changed",
            json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": id } }),
        ),
    ] {
        stream
            .message(&notification(method, &params))
            .await
            .unwrap();
        client.next().await;
    }
    assert_eq!(tools(&gateway, "/mcp/t").await, ["up__new"]);
}

/// Cases 100, 106, T46, XT-308: names are exact and the same names decide everything: what the list does not show
/// is unknown to every way of naming it, in the same words, and no upstream hears of it.
#[tokio::test]
async fn case_106_hidden_is_unknown_to_every_method() {
    let upstream = modern_upstream(json!({ "tools": {}, "prompts": {}, "resources": {}, "completions": {} }), |request| {
        let result = match request.rpc_method().as_str() {
            "resources/list" => json!({ "resources": [{ "uri": "x:shown", "name": "s" }, { "uri": "x:hidden", "name": "h" }] }),
            "resources/templates/list" => json!({ "resourceTemplates": [] }),
            _ => return listed(request, &["shown", "hidden"]),
        };
        Some(Answer::result(request, &result))
    })
    .await;
    let allow = r#"tools: { allow: ["*shown"] }, prompts: { allow: ["*shown"] }, resources: { allow: ["*shown"] }"#;
    let gateway = Gateway::start(&format!(
        "  t:\n    auth: none\n    policy: allow_all\n    upstreams:\n      up: {{ url: \"{}\" }}\n    servers:\n      default: {{ upstreams: [up], {allow} }}\n      up: {{ upstream: up, {allow} }}\n",
        upstream.url()
    ));
    assert_eq!(tools(&gateway, "/mcp/t").await, ["up__shown"]);
    assert_eq!(tools(&gateway, "/mcp/t/up").await, ["shown"]);
    for (target, prefix) in [("/mcp/t", "up__"), ("/mcp/t/up", "")] {
        let uri = |name: &str| {
            if prefix.is_empty() {
                format!("x:{name}")
            } else {
                format!("up+x:{name}")
            }
        };
        for (method, list) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
            let answer = ask(&gateway, target, method, &json!({})).await;
            assert_eq!(names(&answer, list).len(), 1, "{answer}");
        }
        for method in [
            "tools/call",
            "prompts/get",
            "completion/complete",
            "resources/read",
        ] {
            let mut told = Vec::new();
            for name in ["hidden", "nosuch", "Shown", "shown "] {
                let named = format!("{prefix}{name}");
                let params = match method {
                    "completion/complete" => {
                        json!({ "ref": { "type": "ref/prompt", "name": named }, "argument": { "name": "a", "value": "" } })
                    }
                    "resources/read" => json!({ "uri": uri(name).trim_end() }),
                    _ => json!({ "name": named }),
                };
                if method == "resources/read" && name == "shown " {
                    continue;
                }
                let request = modern(target, &json!(1), method, &params);
                let request = if name.ends_with(' ') && method != "completion/complete" {
                    let header = if prefix.is_empty() {
                        "=?base64?c2hvd24g?="
                    } else {
                        "=?base64?dXBfX3Nob3duIA==?="
                    };
                    request.without("mcp-name").field("Mcp-Name", header)
                } else {
                    request
                };
                let answer = gateway.ask(request).await;
                let text = String::from_utf8(answer.body.to_vec()).unwrap();
                told.push(text.replace(&uri(name), "URI"));
            }
            told.dedup();
            assert_eq!(told.len(), 1, "{target} {method}: {told:?}");
            assert!(told[0].contains("-32602"), "{method}: {told:?}");
        }
        let filter = json!({ "resourceSubscriptions": [uri("hidden"), uri("shown")] });
        let listen = modern(
            target,
            &json!(1),
            "subscriptions/listen",
            &json!({ "notifications": filter }),
        );
        drop(gateway.connect().await.open(&listen).await.unwrap());
    }
    // the upstream's own name is none on a federated server
    let answer = ask(
        &gateway,
        "/mcp/t",
        "tools/call",
        &json!({ "name": "shown" }),
    )
    .await;
    assert_eq!(answer["error"]["code"], -32602);
    for request in upstream.requests() {
        let body = String::from_utf8(request.body.to_vec()).unwrap();
        assert!(
            !body.contains("hidden") && !body.contains("nosuch"),
            "{body}"
        );
        assert!(!matches!(
            request.rpc_method().as_str(),
            "tools/call" | "prompts/get" | "completion/complete" | "resources/read"
        ));
    }
}
