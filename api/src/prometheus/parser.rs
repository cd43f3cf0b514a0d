//! From texts to expressions: a recursive descent whose depth is bounded.

use super::expression::{Comparison, Expression, METRIC, Measure, Operator, Selector};
use super::lexer::{Token, Unreadable, tokens};
use super::matcher::Matcher;
use crate::problem::{Problem, Result};

/// Bytes of an expression.
const BYTES_MAX: usize = 16 << 10;
/// How deep parentheses and functions may be nested.
const DEPTH_MAX: usize = 32;
/// Operators of one expression: each makes it deeper by one.
const OPERATORS_MAX: usize = 64;
/// Matchers of one expression: a regular expression takes a moment, and memory.
pub(super) const MATCHERS_MAX: usize = 64;
/// Series that `topk` may keep.
const TOP_MAX: usize = 1_000;

type Parsed<T> = std::result::Result<T, Unreadable>;

/// The expression of a text, which is that of the parameter `name`. Fails with 400 that says where it cannot be read,
/// and by what it can be.
pub(super) fn parse(name: &str, text: &str) -> Result<Expression> {
    parse_whole(name, text, |parser| parser.comparison(0))
}

/// The selector of a text without a range, which is that of the parameter `name`. Fails as [`parse`] does.
pub(super) fn parse_selector(name: &str, text: &str) -> Result<Vec<Matcher>> {
    parse_whole(name, text, |parser| match parser.take_name() {
        Some(metric) => parser.named(&metric),
        None => parser.matchers(Vec::new()),
    })
}

fn parse_whole<T>(
    name: &str,
    text: &str,
    parse: impl FnOnce(&mut Parser<'_>) -> Parsed<T>,
) -> Result<T> {
    if text.len() > BYTES_MAX {
        let detail = format!("must have at most {BYTES_MAX} bytes");
        return Err(Problem::malformed(name, "", detail));
    }
    let parsed = tokens(text).and_then(|tokens| {
        let mut parser = Parser {
            tokens: &tokens,
            at: 0,
            operators: 0,
            matchers: 0,
            end: text.len(),
        };
        let parsed = parse(&mut parser)?;
        match parser.peek() {
            None => Ok(parsed),
            Some(_) => Err(parser.expected("an operator (+ - * / == != > < >= <=), or the end")),
        }
    });
    parsed.map_err(|Unreadable { at, expected }| {
        let character = text[..at].chars().count() + 1;
        let detail =
            format!("cannot be read at character {character}: expected there is {expected}");
        Problem::malformed(name, "", detail)
    })
}

struct Parser<'t> {
    tokens: &'t [(usize, Token)],
    /// The token that comes next.
    at: usize,
    /// How many operators were read.
    operators: usize,
    /// How many matchers were read.
    matchers: usize,
    /// Bytes of the text.
    end: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    /// The failure at the token that comes next.
    fn expected(&self, expected: impl Into<String>) -> Unreadable {
        let next = self.tokens.get(self.at);
        Unreadable {
            at: next.map_or(self.end, |(at, _)| *at),
            expected: expected.into(),
        }
    }

    /// Takes one of these signs, if it comes next.
    fn take_sign(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        let found = match self.peek()? {
            Token::Sign(sign) if signs.contains(sign) => *sign,
            _ => return None,
        };
        self.at += 1;
        Some(found)
    }

    fn need_sign(&mut self, sign: &'static str) -> Parsed<()> {
        match self.take_sign(&[sign]) {
            Some(_) => Ok(()),
            None => Err(self.expected(format!("`{sign}`"))),
        }
    }

    fn take_name(&mut self) -> Option<String> {
        let Token::Name(name) = self.peek()? else {
            return None;
        };
        let name = name.clone();
        self.at += 1;
        Some(name)
    }

    /// Takes a word, in either case, if it comes next.
    fn take_word(&mut self, word: &str) -> bool {
        let is_it =
            matches!(self.peek(), Some(Token::Name(name)) if name.eq_ignore_ascii_case(word));
        self.at += usize::from(is_it);
        is_it
    }

    fn take_duration(&mut self) -> Parsed<i64> {
        match self.peek() {
            Some(&Token::Duration(seconds)) => {
                self.at += 1;
                Ok(seconds)
            }
            _ => Err(self.expected("a length of time of whole seconds, such as 5m, 1h or 7d")),
        }
    }

    fn comparison(&mut self, depth: usize) -> Parsed<Expression> {
        const SIGNS: [(&str, Comparison); 6] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Unequal),
            (">", Comparison::Above),
            ("<", Comparison::Below),
            (">=", Comparison::AtLeast),
            ("<=", Comparison::AtMost),
        ];
        let signs = SIGNS.map(|(sign, comparison)| (sign, Operator::Compare(comparison)));
        self.operation(&signs, depth, |parser| parser.sum(depth))
    }

    fn sum(&mut self, depth: usize) -> Parsed<Expression> {
        let signs = [("+", Operator::Add), ("-", Operator::Subtract)];
        self.operation(&signs, depth, |parser| parser.product(depth))
    }

    fn product(&mut self, depth: usize) -> Parsed<Expression> {
        let signs = [("*", Operator::Multiply), ("/", Operator::Divide)];
        self.operation(&signs, depth, |parser| parser.signed(depth))
    }

    /// Operands with operators of one rank between them, from the left.
    fn operation(
        &mut self,
        operators: &[(&'static str, Operator)],
        depth: usize,
        mut operand: impl FnMut(&mut Self) -> Parsed<Expression>,
    ) -> Parsed<Expression> {
        if depth > DEPTH_MAX {
            return Err(self.expected(format!("at most {DEPTH_MAX} parentheses in each other")));
        }
        let mut left = operand(self)?;
        let signs: Vec<&'static str> = operators.iter().map(|(sign, _)| *sign).collect();
        while let Some(sign) = self.take_sign(&signs) {
            self.operators += 1;
            if self.operators > OPERATORS_MAX {
                return Err(self.expected(format!("the end, behind {OPERATORS_MAX} operators")));
            }
            if let Some(Token::Name(word)) = self.peek()
                && ["bool", "on", "ignoring"].contains(&word.to_ascii_lowercase().as_str())
            {
                return Err(self.expected(format!(
                    "the right side: `{word}` is not supported, and series match by all labels"
                )));
            }
            let (_, operator) = operators[signs.iter().position(|of| *of == sign).unwrap_or(0)];
            let right = operand(self)?;
            left = Expression::Binary {
                operator,
                left: Box::new(left),
                right: Box::new(right),
            };
        }
        Ok(left)
    }

    fn signed(&mut self, depth: usize) -> Parsed<Expression> {
        if self.take_sign(&["-"]).is_none() {
            return self.value(depth);
        }
        let value = match self.value(depth)? {
            Expression::Number(number) => return Ok(Expression::Number(-number)),
            value => value,
        };
        Ok(Expression::Binary {
            operator: Operator::Multiply,
            left: Box::new(Expression::Number(-1.0)),
            right: Box::new(value),
        })
    }

    fn value(&mut self, depth: usize) -> Parsed<Expression> {
        const EXPECTED: &str = "a number, `(`, `sum`, `topk`, `increase`, `rate` or a selector such as tallyring_count{namespace=\"l\"}";
        match self.peek() {
            Some(&Token::Number(number)) => {
                self.at += 1;
                Ok(Expression::Number(number))
            }
            Some(Token::Sign("(")) => {
                self.at += 1;
                let inner = self.comparison(depth + 1)?;
                self.need_sign(")")?;
                Ok(inner)
            }
            Some(Token::Sign("{")) => {
                let matchers = self.matchers(Vec::new())?;
                self.select(matchers, None)
            }
            Some(Token::Name(name)) => {
                let name = name.to_ascii_lowercase();
                let is_called = match self.tokens.get(self.at + 1) {
                    Some((_, Token::Sign("("))) => true,
                    Some((_, Token::Name(word))) => !word.eq_ignore_ascii_case("offset"),
                    _ => false,
                };
                match name.as_str() {
                    "sum" if is_called => self.sum_of(depth),
                    "topk" if is_called => self.top_of(depth),
                    "increase" if is_called => self.measured(Measure::Increase),
                    "rate" if is_called => self.measured(Measure::Rate),
                    _ if is_called => Err(self.expected(EXPECTED)),
                    _ => {
                        let metric = self.take_name().unwrap_or_default();
                        let matchers = self.named(&metric)?;
                        self.select(matchers, None)
                    }
                }
            }
            _ => Err(self.expected(EXPECTED)),
        }
    }

    /// `sum by (labels) (…)`, or with the labels behind.
    fn sum_of(&mut self, depth: usize) -> Parsed<Expression> {
        self.at += 1;
        let before = self.grouping()?;
        self.need_sign("(")?;
        let of = Box::new(self.comparison(depth + 1)?);
        self.need_sign(")")?;
        let by = match before {
            Some(by) => by,
            None => self.grouping()?.unwrap_or_default(),
        };
        Ok(Expression::Sum { by, of })
    }

    /// `topk(count, …)`
    fn top_of(&mut self, depth: usize) -> Parsed<Expression> {
        self.at += 1;
        self.need_sign("(")?;
        let count = match self.peek() {
            Some(&Token::Number(number)) if number.fract() == 0.0 && number >= 1.0 => {
                number as usize
            }
            _ => return Err(self.expected(format!("a whole number from 1 to {TOP_MAX}"))),
        };
        if count > TOP_MAX {
            return Err(self.expected(format!("a whole number from 1 to {TOP_MAX}")));
        }
        self.at += 1;
        self.need_sign(",")?;
        let of = Box::new(self.comparison(depth + 1)?);
        self.need_sign(")")?;
        Ok(Expression::Top { count, of })
    }

    /// `by (labels)`, if it comes next.
    fn grouping(&mut self) -> Parsed<Option<Vec<String>>> {
        if !self.take_word("by") {
            let is_without = matches!(self.peek(), Some(Token::Name(word)) if word.eq_ignore_ascii_case("without"));
            return match is_without {
                true => Err(self.expected("`by`: name the labels that stay")),
                false => Ok(None),
            };
        }
        self.need_sign("(")?;
        let mut labels = Vec::new();
        while self.take_sign(&[")"]).is_none() {
            let label = self
                .take_name()
                .ok_or_else(|| self.expected("a label, or `)`"))?;
            if !labels.contains(&label) {
                labels.push(label);
            }
            if self.take_sign(&[","]).is_none() {
                self.need_sign(")")?;
                break;
            }
        }
        Ok(Some(labels))
    }

    /// `increase(…[1h])`
    fn measured(&mut self, measure: fn(i64) -> Measure) -> Parsed<Expression> {
        self.at += 1;
        self.need_sign("(")?;
        let matchers = match self.take_name() {
            Some(metric) => self.named(&metric)?,
            None => self.matchers(Vec::new())?,
        };
        if self.take_sign(&["["]).is_none() {
            return Err(self.expected("a range in brackets, such as [1h]"));
        }
        let range = self.take_duration()?;
        if range == 0 {
            self.at -= 1;
            return Err(self.expected("a range that is longer than nothing"));
        }
        self.need_sign("]")?;
        let selected = self.select(matchers, Some(measure(range)))?;
        self.need_sign(")")?;
        Ok(selected)
    }

    /// The matchers of a metric that is named in front of them.
    fn named(&mut self, metric: &str) -> Parsed<Vec<Matcher>> {
        let name = Matcher::new("__name__".to_owned(), "=", metric.to_owned());
        let name = name.map_err(|expected| self.expected(expected))?;
        match self.peek() {
            Some(Token::Sign("{")) => self.matchers(vec![name]),
            _ => Ok(vec![name]),
        }
    }

    /// `{label="value", …}`, behind these matchers.
    fn matchers(&mut self, mut matchers: Vec<Matcher>) -> Parsed<Vec<Matcher>> {
        self.need_sign("{")?;
        while self.take_sign(&["}"]).is_none() {
            self.matchers += 1;
            if self.matchers > MATCHERS_MAX {
                return Err(self.expected(format!("at most {MATCHERS_MAX} conditions on labels")));
            }
            let label = self
                .take_name()
                .ok_or_else(|| self.expected("a label such as key, or `}`"))?;
            let operator = self.take_sign(&["=", "!=", "=~", "!~"]);
            let operator = operator.ok_or_else(|| self.expected("`=`, `!=`, `=~` or `!~`"))?;
            let Some(Token::Text(value)) = self.peek() else {
                return Err(self.expected("a value between quotes"));
            };
            let matcher = Matcher::new(label, operator, value.clone());
            matchers.push(matcher.map_err(|expected| self.expected(expected))?);
            self.at += 1;
            if self.take_sign(&[","]).is_none() {
                self.need_sign("}")?;
                break;
            }
        }
        Ok(matchers)
    }

    /// A selector with all that stands behind it.
    fn select(&mut self, matchers: Vec<Matcher>, measure: Option<Measure>) -> Parsed<Expression> {
        if matches!(self.peek(), Some(Token::Sign("["))) {
            return Err(self.expected(format!(
                "no range, which stands within a function: increase({METRIC}{{…}}[1h])"
            )));
        }
        let mut offset = 0;
        if self.take_word("offset") {
            let is_later = self.take_sign(&["-"]).is_some();
            let seconds = self.take_duration()?;
            offset = if is_later { -seconds } else { seconds };
        }
        Ok(Expression::Select(Selector {
            matchers,
            measure: measure.unwrap_or(Measure::Value),
            offset,
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Words of which expressions consist, and a few that are none.
    const WORDS: [&str; 34] = [
        "sum",
        "by",
        "topk",
        "increase",
        "rate",
        "offset",
        "tallyring_count",
        "x",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        "=",
        "=~",
        "!=",
        "!~",
        "==",
        ">",
        "<=",
        "+",
        "-",
        "*",
        "/",
        "1",
        "1h",
        "1.5",
        "\"a\"",
        "'.*a'",
        "bool",
        "\"",
        "é",
    ];

    proptest! {
        #[test]
        fn prop_any_text_is_read_or_refused(text in "\\PC{0,80}") {
            let _ = parse("query", &text);
            let _ = parse_selector("match[]", &text);
        }

        #[test]
        fn prop_any_words_are_read_or_refused(words in prop::collection::vec(0..WORDS.len(), 0..60)) {
            let words: Vec<&str> = words.into_iter().map(|word| WORDS[word]).collect();
            for text in [words.concat(), words.join(" ")] {
                let _ = parse("query", &text);
                let _ = parse_selector("match[]", &text);
            }
        }
    }

    #[test]
    fn operators_bind_as_they_do_elsewhere() {
        let same = |one: &str, other: &str| {
            let parsed =
                |text| parse("query", text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(parsed(one), parsed(other), "{one}");
        };
        same("1 + 2 * 3 - 4", "(1 + (2 * 3)) - 4");
        same("8 / 2 / 2", "(8 / 2) / 2");
        same("x > 1 + 2", "x > (1 + 2)");
        same("-x * 2", "(-x) * 2");
        same("SUM BY (a, b,) (x)", "sum(x) by (a,b)");
        same("x{a='1',}", "{__name__=\"x\", a=\"1\"}");
        same("increase(x[1h] offset 1d)", "increase(x[60m]  OFFSET 24h)");
        assert!(parse("query", &"(".repeat(16_000)).is_err());
        assert!(parse("query", &"-".repeat(16_000)).is_err());
    }
}
