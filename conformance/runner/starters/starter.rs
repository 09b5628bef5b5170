// A runtime to start from, in Rust: it speaks the protocol of tensor-conformance and knows a few
// statements on int32 and float32.  Add an arm to `evaluate` and a name to `STATEMENTS`: each is
// one more that the suite tests.  It needs no crate; with serde_json the first part goes.
//
//     rustc -O -o NAME NAME.rs
//     tensor-conformance run --cmd ./NAME
use std::collections::HashMap;
use std::io::{self, BufRead, Write};

// JSON ----------------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Map(HashMap<String, Json>),
}

impl Json {
    fn get(&self, key: &str) -> &Json {
        match self {
            Json::Map(fields) => fields.get(key).unwrap_or(&Json::Null),
            _ => &Json::Null,
        }
    }
    fn text(&self) -> String {
        if let Json::Text(text) = self { text.clone() } else { String::new() }
    }
    fn list(&self) -> Vec<Json> {
        if let Json::List(items) = self { items.clone() } else { vec![] }
    }
    fn number(&self) -> f64 {
        if let Json::Number(number) = self { *number } else { 0.0 }
    }
    fn sizes(&self) -> Vec<usize> {
        self.list().iter().map(|each| each.number() as usize).collect()
    }
    fn names(&self) -> Vec<String> {
        self.list().iter().map(Json::text).collect()
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn next(&mut self) -> u8 {
        while self.at < self.bytes.len() && self.bytes[self.at].is_ascii_whitespace() {
            self.at += 1;
        }
        *self.bytes.get(self.at).unwrap_or(&0)
    }
    fn value(&mut self) -> Json {
        match self.next() {
            b'{' => {
                let mut fields = HashMap::new();
                self.items(b'}', |parser| {
                    let key = parser.text();
                    parser.next();
                    parser.at += 1; // the colon
                    let value = parser.value();
                    fields.insert(key, value);
                });
                Json::Map(fields)
            }
            b'[' => {
                let mut found = vec![];
                self.items(b']', |parser| found.push(parser.value()));
                Json::List(found)
            }
            b'"' => Json::Text(self.text()),
            _ => {
                let start = self.at;
                while self.at < self.bytes.len() && !b",]} \n".contains(&self.bytes[self.at]) {
                    self.at += 1;
                }
                let word = String::from_utf8_lossy(&self.bytes[start..self.at]).to_string();
                match word.as_str() {
                    "true" => Json::Bool(true),
                    "false" => Json::Bool(false),
                    _ => word.parse().map(Json::Number).unwrap_or(Json::Null),
                }
            }
        }
    }
    fn items(&mut self, end: u8, mut each: impl FnMut(&mut Self)) {
        self.at += 1;
        while self.next() != end && self.at < self.bytes.len() {
            if self.next() == b',' {
                self.at += 1;
            } else {
                each(self);
            }
        }
        self.at += 1;
    }
    fn text(&mut self) -> String {
        self.next();
        let (mut found, mut at) = (vec![], self.at + 1);
        while at < self.bytes.len() && self.bytes[at] != b'"' {
            at += (self.bytes[at] == b'\\') as usize; // escapes as they are: names have none
            found.push(self.bytes[at]);
            at += 1;
        }
        self.at = at + 1;
        String::from_utf8_lossy(&found).to_string()
    }
}

// The runtime ---------------------------------------------------------------------------------

const STATEMENTS: &str = r#"["input", "constant", "neg", "add", "sub", "mul", "reshape", "sum",
    "copy", "realize", "drop", "observe"]"#;

/// The bits of the elements, row by row; both dtypes have four bytes.
#[derive(Clone)]
struct Value {
    dtype: String,
    shape: Vec<usize>,
    bits: Vec<u32>,
}

enum Problem {
    Unsupported(String),
    Wrong(String),
}

fn wrong<T>(message: String) -> Result<T, Problem> {
    Err(Problem::Wrong(message))
}

fn evaluate(statement: &Json, from: &[Value]) -> Result<Value, Problem> {
    let (to_dtype, to_shape) = (statement.get("dtype").text(), statement.get("shape").sizes());
    let count: usize = to_shape.iter().product();
    let name = statement.get("do").text();
    if name == "input" {
        let data = statement.get("data").text();
        let raw: Vec<u32> = (0..data.len() / 2)
            .map(|i| u32::from_str_radix(&data[2 * i..2 * i + 2], 16).unwrap_or(0))
            .collect();
        let bits: Vec<u32> = raw
            .chunks(4)
            .map(|b| b.iter().rev().fold(0, |total, byte| total << 8 | byte))
            .collect();
        if bits.len() != count {
            return wrong(format!("input: {} elements for {:?}", bits.len(), to_shape));
        }
        return Ok(Value { dtype: to_dtype, shape: to_shape, bits });
    }
    if name == "constant" {
        let value = statement.get("value");
        let number = match value.text().as_str() {
            "nan" => f64::NAN, // JSON has no NaN and no infinities
            "inf" => f64::INFINITY,
            "-inf" => f64::NEG_INFINITY,
            _ => value.number(),
        };
        let bits = if to_dtype == "float32" { (number as f32).to_bits() } else { number as i64 as u32 };
        return Ok(Value { dtype: to_dtype, shape: to_shape, bits: vec![bits; count] });
    }
    let x = match from.first() {
        Some(x) => x,
        None => return Err(Problem::Unsupported(name)),
    };
    let float = x.dtype == "float32";
    let mut made = x.clone();
    match name.as_str() {
        "copy" => {}
        "neg" => {
            for bits in &mut made.bits {
                *bits = if float { *bits ^ 1 << 31 } else { bits.wrapping_neg() };
            }
        }
        "add" | "sub" | "mul" => {
            if from.len() < 2 || from[1].shape != x.shape {
                return wrong(format!("{}: the shapes differ", name));
            }
            for (bits, &other) in made.bits.iter_mut().zip(&from[1].bits) {
                let (a, b) = (f32::from_bits(*bits), f32::from_bits(other));
                *bits = match (name.as_str(), float) {
                    ("add", true) => (a + b).to_bits(),
                    ("sub", true) => (a - b).to_bits(),
                    ("mul", true) => (a * b).to_bits(),
                    ("add", false) => bits.wrapping_add(other),
                    ("sub", false) => bits.wrapping_sub(other),
                    _ => bits.wrapping_mul(other),
                };
            }
        }
        "reshape" => {
            if count != x.bits.len() {
                return wrong(format!("reshape: {:?} cannot become {:?}", x.shape, to_shape));
            }
            made.shape = to_shape;
        }
        "sum" => return Ok(sum(statement, x)),
        _ => return Err(Problem::Unsupported(name)),
    }
    Ok(made)
}

/// Each element goes to the place that its other axes name.
fn sum(statement: &Json, x: &Value) -> Value {
    let axes = statement.get("axes").sizes();
    let keep = matches!(statement.get("keepdims"), Json::Bool(true));
    let mut shape = vec![];
    for (axis, &size) in x.shape.iter().enumerate() {
        if !axes.contains(&axis) {
            shape.push(size);
        } else if keep {
            shape.push(1);
        }
    }
    let count = shape.iter().product();
    let (mut exact, mut floats) = (vec![0u32; count], vec![0f64; count]);
    for (i, &bits) in x.bits.iter().enumerate() {
        let (mut place, mut rest, mut width) = (0, i, 1);
        for (axis, &size) in x.shape.iter().enumerate().rev() {
            if !axes.contains(&axis) {
                place += rest % size * width;
                width *= size;
            }
            rest /= size;
        }
        exact[place] = exact[place].wrapping_add(bits);
        floats[place] += f32::from_bits(bits) as f64;
    }
    if x.dtype == "float32" {
        exact = floats.iter().map(|&total| (total as f32).to_bits()).collect();
    }
    Value { dtype: x.dtype.clone(), shape, bits: exact }
}

/// Execute a program, each statement where it stands; what it observed, as JSON.
fn run(program: &Json) -> Result<Vec<String>, Problem> {
    let (mut variables, mut seen) = (HashMap::<String, Value>::new(), vec![]);
    for statement in program.get("statements").list() {
        let name = statement.get("do").text();
        let mut from = vec![];
        let names = statement.get("names").names();
        for each in statement.get("from").names().iter().chain(&names) {
            match variables.get(each) {
                Some(value) => from.push(value.clone()),
                None => return wrong(format!("{}: there is no {}", name, each)),
            }
        }
        match name.as_str() {
            "realize" => {} // nothing is lazy here
            "drop" => names.iter().for_each(|each| {
                variables.remove(each);
            }),
            "observe" => {
                for (each, value) in names.iter().zip(&from) {
                    let data: String = value.bits.iter().flat_map(|bits| bits.to_le_bytes())
                        .map(|byte| format!("{:02x}", byte)).collect();
                    seen.push(format!(
                        r#"{{"name": "{}", "dtype": "{}", "shape": {:?}, "data": "{}"}}"#,
                        each, value.dtype, value.shape, data));
                }
            }
            _ => {
                let value = evaluate(&statement, &from)?;
                variables.insert(statement.get("to").text(), value);
            }
        }
    }
    Ok(seen)
}

fn answer(message: &Json) -> String {
    let (kind, seq) = (message.get("type").text(), message.get("seq").number());
    if kind == "start" {
        return format!(
            r#"{{"type": "started", "protocol": "tensor-conformance/1", "info": {{"name": "NAME",
            "version": "1", "language": "Rust", "observes": ["values"], "statements": {},
            "dtypes": ["int32", "float32"]}}}}"#, STATEMENTS).replace('\n', " ");
    }
    // A `reset` forgets what is kept between programs: nothing.
    let seen = if kind == "run" { run(message.get("program")) } else { Ok(vec![]) };
    match seen {
        Ok(values) => format!(r#"{{"type": "ok", "seq": {}, "observation": {{"values": [{}]}}}}"#,
                              seq, values.join(", ")),
        Err(Problem::Unsupported(what)) =>
            format!(r#"{{"type": "unsupported", "seq": {}, "what": "{}"}}"#, seq, what),
        Err(Problem::Wrong(what)) =>
            format!(r#"{{"type": "error", "seq": {}, "message": "{}"}}"#, seq, what),
    }
}

fn main() {
    for line in io::stdin().lock().lines().flatten() {
        let message = Parser { bytes: line.as_bytes(), at: 0 }.value();
        if message.get("type").text() == "stop" {
            return;
        }
        println!("{}", answer(&message));
        io::stdout().flush().unwrap();
    }
}
