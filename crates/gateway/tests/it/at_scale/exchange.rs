//! Generated exchanges: a call as a client writes it and the answer of an upstream. Both keep the
//! structure they were written from, so that the oracle edits that structure and never parses a text.

use super::oracle::{
    CAPABILITIES, CLIENT, Edits, LEVEL, OF_ANSWERS, OF_CALLS, Owned, SERVER, SUBSCRIPTION, TOKEN,
    UNKNOWN, VERSION, meta_of_call,
};
use crate::generate::{Edit, Object, Random, Value};

/// Which kind of hop an exchange is for, on both sides of the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Era {
    /// 2026-07-28.
    Stateless,
    /// 2025-11-25.
    Sessions,
}

/// Stands for the id that the gateway chose in what the upstream must see. No generated text has it.
pub(crate) const OWN_ID: &str = "\u{10fffd}";

/// A client's capabilities, and how the gateway writes them.
const DECLARED: [(&str, &str); 3] = [
    ("{}", "{}"),
    (
        r#"{ "elicitation" : { } }"#,
        r#"{"elicitation":{"form":{}}}"#,
    ),
    (r#"{"com.example/unknown":[1.0]}"#, "{}"),
];
/// Names of tools, and their `Mcp-Name`.
const NAMES: [(&str, &str); 4] = [
    ("\"t\"", "t"),
    ("\"a\\u0062\"", "ab"),
    ("\"a\\/b\"", "a/b"),
    ("\"\u{1f600}\"", "=?base64?8J+YgA==?="),
];
const METHODS: [&str; 3] = [
    "\"tools/call\"",
    "\"tools\\/call\"",
    "\"t\\u006fols/c\\u0061ll\"",
];

/// A call and its answer.
pub(crate) struct Exchange {
    pub(super) era: Era,
    /// The client's id, as it writes it.
    pub(super) id: String,
    /// The value of its `Mcp-Name`.
    pub(crate) name: &'static str,
    call: Object,
    answer: Object,
    /// What stands before and behind the two messages.
    around: [&'static str; 4],
    /// How the gateway writes the capabilities that the call declares.
    pub(super) capabilities: &'static str,
    /// Whether the call has a log level, a progress token.
    pub(super) level: bool,
    pub(super) token: bool,
    /// Whether the result has a type.
    pub(super) typed: bool,
}

impl Exchange {
    /// The exchange of this number; its id is no other's.
    pub(crate) fn new(number: u64, era: Era) -> Self {
        let mut random = Random::new(number);
        let (name, header) = NAMES[random.below(NAMES.len())];
        let (declared, capabilities) = DECLARED[random.below(DECLARED.len())];
        let (level, token) = (random.one_in(3), random.one_in(2));
        let typed = random.one_in(2);
        let id = id(&mut random, number);
        let mut exchange = Self {
            era,
            id,
            name: header,
            call: Object::of(Vec::new()),
            answer: Object::of(Vec::new()),
            around: std::array::from_fn(|_| random.space()),
            capabilities,
            level: level && era == Era::Stateless,
            token,
            typed,
        };
        exchange.call = exchange.made_call(&mut random, number, (name, declared));
        exchange.answer = exchange.made_answer(&mut random);
        exchange
    }

    /// The number of the exchange that a call belongs to.
    pub(crate) fn number_of(call: &str) -> Option<u64> {
        let (_, behind) = call.split_once("\"exchange-")?;
        behind.split_once('"')?.0.parse().ok()
    }

    /// The call as the client sends it.
    pub(crate) fn sent(&self) -> String {
        self.around_call(&self.call)
    }

    /// The call as the upstream must see it, [`OWN_ID`] in the place of the id that the gateway
    /// chooses. `without`: as if that row of [`OF_CALLS`] did not exist.
    pub(crate) fn forwarded(&self, without: Option<usize>) -> String {
        self.around_call(&self.edited(&self.call, &OF_CALLS, without))
    }

    /// The answer of the upstream to a call that came with this id.
    pub(crate) fn answered(&self, own: &str) -> String {
        self.around_answer(&self.answer).replace(OWN_ID, own)
    }

    /// The answer as the client must see it; see [`Self::forwarded`].
    pub(crate) fn returned(&self, without: Option<usize>) -> String {
        self.around_answer(&self.edited(&self.answer, &OF_ANSWERS, without))
    }

    fn edited(&self, message: &Object, oracle: &[Owned], without: Option<usize>) -> Object {
        let mut edited = message.clone();
        for (row, owned) in oracle.iter().enumerate() {
            if Some(row) == without {
                continue;
            }
            for (path, edit) in (owned.edits)(self) {
                edited.edit(&path, edit);
            }
        }
        edited
    }

    fn around_call(&self, message: &Object) -> String {
        let [before, behind, ..] = self.around;
        format!("{before}{}{behind}", message.text())
    }

    fn around_answer(&self, message: &Object) -> String {
        let [.., before, behind] = self.around;
        format!("{before}{}{behind}", message.text())
    }

    /// Members of a call's `_meta`, where clients say such things of themselves.
    pub(super) fn of_stateless(&self, members: &[(&'static str, &str)]) -> Edits {
        if self.era == Era::Sessions {
            return Vec::new();
        }
        let set = |(key, value): &(&'static str, &str)| {
            (meta_of_call(key), Edit::Set((*value).to_owned()))
        };
        members.iter().map(set).collect()
    }

    // === making ===

    fn made_call(
        &self,
        random: &mut Random,
        number: u64,
        (name, declared): (&str, &str),
    ) -> Object {
        let mut params = vec![
            ("name".to_owned(), Value::text(name)),
            (
                "arguments".to_owned(),
                Value::Text(arguments(random, number)),
            ),
        ];
        if let Some(meta) = self.call_meta(random, declared) {
            params.push(("_meta".to_owned(), meta));
        }
        let params = Value::Object(random.object(params));
        let method = random.pick(&METHODS);
        random.object(vec![
            ("jsonrpc".to_owned(), Value::text("\"2.0\"")),
            ("id".to_owned(), Value::text(&self.id)),
            ("method".to_owned(), Value::text(method)),
            ("params".to_owned(), params),
        ])
    }

    fn call_meta(&self, random: &mut Random, declared: &str) -> Option<Value> {
        let mut members = Vec::new();
        let mut add = |key: &str, value: &str| members.push((key.to_owned(), Value::text(value)));
        if self.era == Era::Stateless {
            add(VERSION, "\"2026-07-28\"");
            add(CAPABILITIES, declared);
            if random.one_in(2) {
                add(CLIENT, r#"{ "name":"c" , "version":"\u0031"}"#);
            }
            if self.level {
                add(LEVEL, "\"inf\\u006f\"");
            }
        } else if !self.token && random.one_in(3) {
            return None;
        }
        if self.token {
            add(
                TOKEN,
                random.pick(&["7", "\"t\\/\"", "\"\"", "-9007199254740991"]),
            );
        }
        for key in UNKNOWN {
            if random.one_in(5) {
                add(key, "{\"x\": 1.0}");
            }
        }
        if random.one_in(4) {
            let trace = "\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"";
            add("traceparent", trace);
        }
        Some(Value::Object(random.object(members)))
    }

    fn made_answer(&self, random: &mut Random) -> Object {
        let mut members = vec![("content".to_owned(), Value::Text(content(random)))];
        if random.one_in(2) {
            // a reader of sessions has no use for another value (TOL-10)
            let value = match self.era {
                Era::Stateless if random.one_in(2) => random.any(4),
                Era::Stateless | Era::Sessions => format!("{{\"k\":{}}}", deep(random)),
            };
            members.push(("structuredContent".to_owned(), Value::Text(value)));
        }
        if random.one_in(3) {
            let flag = random.pick(&["true", "false"]);
            members.push(("isError".to_owned(), Value::text(flag)));
        }
        if self.typed {
            members.push(("resultType".to_owned(), Value::text("\"complete\"")));
        }
        if random.one_in(2) {
            members.push(("_meta".to_owned(), answer_meta(random)));
        }
        let result = Value::Object(random.object(members));
        random.object(vec![
            ("jsonrpc".to_owned(), Value::text("\"2.0\"")),
            ("id".to_owned(), Value::Text(format!("\"{OWN_ID}\""))),
            ("result".to_owned(), result),
        ])
    }
}

/// Every kind of id, each unlike all others.
fn id(random: &mut Random, number: u64) -> String {
    match random.below(5) {
        0 => format!("{number}"),
        1 => format!("-{}", number + 1),
        2 => format!("{number}123456789012345678901234567890"),
        3 => format!("\"\\u00e9\\n\\/{number}\""),
        _ => format!("\"\u{1f600} {number}\""),
    }
}

/// Arguments that say which exchange they are of.
fn arguments(random: &mut Random, number: u64) -> String {
    let mark = format!("\"exchange-{number}\"{}:null", random.space());
    let value = deep(random);
    let other = random.any(4);
    match random.below(3) {
        0 => format!("{{{mark},\"v\":{value}}}"),
        1 => format!("{{ \"v\" :{value} , {mark}\t}}"),
        _ => format!("{{\"v\":{value},{mark},\"v2\" : {other}}}"),
    }
}

/// A value; now and then nested nearly as deep as may be, or long.
fn deep(random: &mut Random) -> String {
    let value = random.any(4);
    if random.one_in(40) {
        let levels = 50 + random.below(60);
        let (open, close) = ("[{\"\":".repeat(levels / 2), "}]".repeat(levels / 2));
        return format!("{open}{value}{close}");
    }
    if random.one_in(100) {
        let long = "漢\\u6f22 \\\"x\\/".repeat(500 + random.below(1_500));
        return format!("[\"{long}\",{value}]");
    }
    value
}

/// Blocks that every reader knows, at least one of them text.
fn content(random: &mut Random) -> String {
    let mut text = format!("[{}", random.space());
    for at in 0..=random.below(3) {
        if at > 0 {
            text += &format!(",{}", random.space());
        }
        let said = random.pick(&[
            "\"\"",
            "\"\\ud800\"",
            "\"a\\/b\u{2028}\"",
            "\"{\\\"a\\\":1}\"",
        ]);
        let block = random.object(vec![
            ("type".to_owned(), Value::text("\"text\"")),
            ("text".to_owned(), Value::text(said)),
        ]);
        text += &block.text();
        text += random.space();
    }
    text.push(']');
    text
}

fn answer_meta(random: &mut Random) -> Value {
    let mut members = Vec::new();
    for key in [VERSION, CLIENT, SERVER, SUBSCRIPTION, TOKEN, "traceparent"] {
        if random.one_in(3) {
            let value = random.pick(&["\"t\"", "1e2", "null", "{ \"name\":\"u\"}"]);
            members.push((key.to_owned(), Value::text(value)));
        }
    }
    Value::Object(random.object(members))
}
