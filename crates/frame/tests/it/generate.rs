//! A seeded generator of messages that parsers disagree about, which keeps the structure of what it
//! wrote, so that it can tell what an edit must leave. The tests of the gateway as a whole use it, too.

/// SplitMix64: the same numbers on every machine.
pub(crate) struct Random(u64);

/// What happens to a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Edit {
    Set(String),
    Remove,
}

/// A value as text, or an object whose members are known.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Object(Object),
}

/// An object: what stands behind the brace, the members, what stands before the closing brace.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    lead: String,
    members: Vec<Member>,
    tail: String,
    /// Members that edits add.
    added: Vec<(String, Value)>,
}

#[derive(Clone, Debug)]
struct Member {
    name: String,
    /// The key token, the colon and the space around it.
    key: String,
    value: Value,
    /// The comma behind it and the space around; unused behind the last one.
    separator: String,
    removed: bool,
}

const NUMBERS: [&str; 12] = [
    "0",
    "-0",
    "-0.0e-0",
    "1e400",
    "-1E+999",
    "1.0",
    "9007199254740993",
    "123456789012345678901234567890",
    "0.1e00000000000001",
    "-9223372036854775809",
    "5e-324",
    "3.141592653589793238462643383279",
];
const STRINGS: [&str; 12] = [
    "\"\"",
    "\"a\\/b\"",
    "\"\\ud800\"",
    "\"\\udc00\\ud800\"",
    "\"\\u0000\"",
    "\"\u{1f600}\\ud83d\\ude00\"",
    "\"}],{[\\\"\\\\\"",
    "\"\u{2028}\u{7f}\u{feff}\"",
    "\"\\b\\f\\n\\r\\t\\u001F\"",
    "\"e\u{301} \u{e9}\"",
    "\"\\\\u0061\"",
    "\"data: x\"",
];
const SPACES: [&str; 8] = ["", "", "", " ", "\n", "\r\n\t", "  ", "\r"];

// === impl Random ===

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("small");
        usize::try_from(self.next() % bound).expect("small")
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    pub(crate) fn space(&mut self) -> &'static str {
        self.pick(&SPACES)
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }

    /// Any JSON value, duplicates and half surrogate pairs included.
    pub(crate) fn any(&mut self, depth: usize) -> String {
        match self.below(if depth == 0 { 5 } else { 8 }) {
            0 | 1 => self.pick(&NUMBERS).to_owned(),
            2 | 3 => self.pick(&STRINGS).to_owned(),
            4 => self.pick(&["null", "true", "false"]).to_owned(),
            kind => {
                let (open, close) = if kind == 5 { ('[', ']') } else { ('{', '}') };
                let mut text = format!("{open}{}", self.space());
                for at in 0..self.below(4) {
                    if at > 0 {
                        text += &format!(",{}", self.space());
                    }
                    if kind != 5 {
                        let key = self.pick(&STRINGS);
                        text += &format!("{key}{}:{}", self.space(), self.space());
                    }
                    text += &self.any(depth - 1);
                    text += self.space();
                }
                text.push(close);
                text
            }
        }
    }

    /// A key token; sometimes with a letter spelled as an escape.
    fn key(&mut self, name: &str) -> String {
        let escaped = self.one_in(6).then(|| self.below(name.len()));
        let letter = |(at, letter): (usize, char)| match Some(at) == escaped {
            true => format!("\\u{:04x}", u32::from(letter)),
            false => letter.to_string(),
        };
        let inner: String = name.char_indices().map(letter).collect();
        format!("\"{inner}\"")
    }

    /// An object of these members and of others that nobody knows, in any order.
    pub(crate) fn object(&mut self, mut members: Vec<(String, Value)>) -> Object {
        for at in 0..self.below(4) {
            let name = format!(
                "{}{at}",
                self.pick(&["x", "vendor.example/", "Names", "z-"])
            );
            members.push((name, Value::Text(self.any(3))));
        }
        self.shuffle(&mut members);
        let members = members.into_iter().map(|(name, value)| {
            let key = format!("{}{}:{}", self.key(&name), self.space(), self.space());
            let separator = format!("{},{}", self.space(), self.space());
            Member {
                name,
                key,
                value,
                separator,
                removed: false,
            }
        });
        let members = members.collect();
        Object {
            lead: self.space().to_owned(),
            members,
            tail: self.space().to_owned(),
            added: Vec::new(),
        }
    }

    /// A request or a response.
    pub(crate) fn message(&mut self, request: bool) -> Object {
        let id = self.pick(&[
            "7",
            "\"a\\/b\"",
            "-0",
            "123456789012345678901234567890",
            "\"\"",
        ]);
        let mut members = vec![
            ("jsonrpc".to_owned(), Value::text("\"2.0\"")),
            ("id".to_owned(), Value::text(id)),
        ];
        if request {
            let method = self.pick(&["\"tools/call\"", "\"tools\\/call\"", "\"prompts/get\""]);
            members.push(("method".to_owned(), Value::text(method)));
            if !self.one_in(10) {
                members.push(("params".to_owned(), self.params()));
            }
        } else {
            members.push(("result".to_owned(), self.result()));
        }
        self.object(members)
    }

    fn params(&mut self) -> Value {
        if self.one_in(20) {
            return Value::text("null");
        }
        let mut members = Vec::new();
        if !self.one_in(5) {
            let name = self.pick(&["\"n\"", "\"a\\u0062\"", "\"\u{1f600}\""]);
            members.push(("name".to_owned(), Value::text(name)));
        }
        if !self.one_in(4) {
            members.push(("arguments".to_owned(), Value::Text(self.any(5))));
        }
        if !self.one_in(4) {
            members.push(("_meta".to_owned(), self.meta()));
        }
        Value::Object(self.object(members))
    }

    fn result(&mut self) -> Value {
        let mut members = vec![("content".to_owned(), Value::Text(self.any(5)))];
        if !self.one_in(3) {
            members.push(("_meta".to_owned(), self.meta()));
        }
        Value::Object(self.object(members))
    }

    fn meta(&mut self) -> Value {
        let mut members = Vec::new();
        let keys = [
            "progressToken",
            "io.modelcontextprotocol/protocolVersion",
            "io.modelcontextprotocol/clientInfo",
            "io.modelcontextprotocol/serverInfo",
            "traceparent",
        ];
        for key in keys {
            if self.one_in(2) {
                let value =
                    self.pick(&["\"t\"", "1e2", "null", "{ \"name\":\"c\"}", "\"\\u0041\""]);
                members.push((key.to_owned(), Value::text(value)));
            }
        }
        if self.one_in(10) {
            members.clear();
        }
        Value::Object(self.object(members))
    }
}

// === impl Value ===

impl Value {
    pub(crate) fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    fn written(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Object(object) => object.text_edited(),
        }
    }
}

// === impl Object ===

impl Object {
    /// An object without space, for a start.
    pub(crate) fn of(members: Vec<(&str, Value)>) -> Object {
        let member = |(name, value): (&str, Value)| Member {
            name: name.to_owned(),
            key: format!("\"{name}\":"),
            value,
            separator: ",".to_owned(),
            removed: false,
        };
        Object {
            lead: String::new(),
            members: members.into_iter().map(member).collect(),
            tail: String::new(),
            added: Vec::new(),
        }
    }

    /// The text before any edit; the same as after none.
    pub(crate) fn text(&self) -> String {
        self.text_edited()
    }

    /// The text after the edits. What is removed takes the separator before it along when something
    /// stays before it, else the one behind it; what is added stands before the closing brace.
    pub(crate) fn text_edited(&self) -> String {
        let mut text = format!("{{{}", self.lead);
        let mut kept = false;
        let mut before = "";
        for member in &self.members {
            if !member.removed {
                text += before;
                text += &member.key;
                text += &member.value.written();
                kept = true;
            }
            before = if kept { &member.separator } else { "" };
        }
        text += &self.tail;
        for (name, value) in &self.added {
            if kept {
                text.push(',');
            }
            text += &format!("\"{name}\":{}", value.written());
            kept = true;
        }
        text.push('}');
        text
    }

    /// Notes an edit of the member at a path. Missing objects on the way are made, for setting.
    pub(crate) fn edit(&mut self, path: &[&str], edit: Edit) {
        let [key, below @ ..] = path else { return };
        let member = self.members.iter_mut().find(|member| member.name == *key);
        match (below.is_empty(), member, edit) {
            (true, Some(member), Edit::Set(text)) => {
                member.value = Value::Text(text);
                member.removed = false;
            }
            (true, Some(member), Edit::Remove) => member.removed = true,
            (true, None, Edit::Set(text)) => {
                self.added.push(((*key).to_owned(), Value::Text(text)));
            }
            (true, None, Edit::Remove) => self.added.retain(|(name, _)| name != key),
            (false, Some(member), edit) => match (&mut member.value, edit) {
                (Value::Object(object), edit) => object.edit(below, edit),
                (Value::Text(_), Edit::Remove) => {}
                (value @ Value::Text(_), edit @ Edit::Set(_)) => {
                    *value = Value::Object(Object::of(Vec::new()));
                    if let Value::Object(object) = value {
                        object.edit(below, edit);
                    }
                }
            },
            (false, None, edit) => {
                let added = self.added.iter_mut().find(|(name, _)| name == key);
                match (added, edit) {
                    (Some((_, Value::Object(object))), edit) => object.edit(below, edit),
                    (Some(_), _) | (None, Edit::Remove) => {}
                    (None, edit @ Edit::Set(_)) => {
                        let mut object = Object::of(Vec::new());
                        object.edit(below, edit);
                        self.added.push(((*key).to_owned(), Value::Object(object)));
                    }
                }
            }
        }
    }
}
