//! The `.csv` and `.svg` forms of reads: paths of their own, and media types of the plain one by `Accept`.

use serde_json::Value;
use utoipa::Modify;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{Content, ContentBuilder, OpenApi, PathItem, RefOr, Schema};

use crate::read::format::Format;

/// A read with its forms: what its CSV looks like, and what is drawn of it.
struct FileForms {
    path: &'static str,
    csv: String,
    svg: Option<&'static str>,
}

/// The reads, one a line: path, an example of its CSV (`↵` ends a row), and what is drawn where something is.
const READS: &str = "\
    /v1/{namespace}/{key}/counts | start,count↵2012-03-15T00:00:00+00:00,0↵2012-03-16T00:00:00+00:00,5↵ | A chart of the buckets\n\
    /v1/{namespace}/{key}/summary | total↵5↵ | A badge with the total\n\
    /v1/{namespace}/{key}/by/{subtotal} | value,count,kind↵US,4,value↵,1,other↵ | Bars of the values; not with rollup=false\n\
    /v1/{namespace}/counts | start,count↵2012-03-15T00:00:00+00:00,5↵2012-03-16T00:00:00+00:00,12↵ | A chart of the buckets\n\
    /v1/{namespace}/by | value,count,kind↵US,12,value↵,5,other↵ | Bars of the values\n\
    /v1/{namespace}/top | key,count,kind↵abc,5,value↵,12,other↵ | Bars of the keys\n\
    /v1/{namespace}/keys | key,count,kind↵abc,5,value↵,,more↵\n\
    /v1/{namespace}/{key}/uniques | start,estimate↵2012-03-15T00:00:00+00:00,0↵2012-03-16T00:00:00+00:00,4↵ | A chart of the buckets\n\
    /v1/{namespace}/{key}/week | weekday,hour,count↵Mon,0,0↵Mon,1,5↵ | A cell for each hour of the week\n\
    /v1/ratios/{ratio}/{entity}/{key} | start,numerator,denominator,ratio↵2012-03-15T00:00:00+00:00,0,0,↵2012-03-16T00:00:00+00:00,1,8,0.125↵ | A chart of the buckets, in percent\n\
    /v1/compare | start,l/abc,l/abd↵2012-03-15T00:00:00+00:00,0,4↵2012-03-16T00:00:00+00:00,5,3↵ | A line for each key\n\
    /v1/query | query,namespace,key,start,value,count,kind↵0,l,abc,2012-03-16T00:00:00+00:00,,5,bucket↵\n\
    /v1/finals | day,version,state,at,upto,type,what,count↵2012-03-16,1,final,2012-03-20T00:05:00Z,80,click,before,3↵\n\
    /v1/finals/days | day,state,versions,at,final_at,reason↵2012-03-15,final,1 2,2012-03-19T00:05:00Z,,↵\n\
    /v1/finals/{day} | day,version,state,at,upto,type,what,count↵2012-03-16,1,final,2012-03-20T00:05:00Z,80,click,after,1↵ | A waterfall: all that came, what differs, and what counts\n\
    /v1/actions/query | user,range,action,view,entity,key,count↵u1,1d,impression,,ad,1,3↵u1,1d,impression,,ad,2,0↵";

const CSV_RULES: &str = "RFC 4180 with a header. In rankings `kind` tells a counted `value` from the sum of the `other` ones, \
    which a limit left out, from `more`, which stands for keys that the answer lacks, and with rollup=false from a bucket with `none`; of many queries at once rows of counts are a \
    `bucket`, and that of a summary is the `total`. Once the store has final days, every row of counts has its `state`: that of its bucket, or of the whole range. Where the total reached 2^53-1, a last column `overflow` is true in rows \
    whose count reached it. Where actions count that are known by their hour alone, a last column `approximate` says so. \
    A text that a spreadsheet would run \
    (it begins with = + - @, a tab or a carriage return, and is neither only that nor a number) has an apostrophe before it; \
    so has one that begins with apostrophes before such a text, so that taking one off gives back what was counted.";

/// Adds the forms of every read.
pub(super) struct Files;

impl Modify for Files {
    fn modify(&self, document: &mut OpenApi) {
        for forms in READS.lines().filter_map(FileForms::of) {
            let paths = &mut document.paths.paths;
            let item = paths.get(forms.path).cloned();
            let item = item.expect("BUG: a read is described");
            for (format, suffix) in forms.formats() {
                let file = forms.file(item.clone(), format, suffix);
                paths.insert(format!("{}{suffix}", forms.path), file);
            }
            if let Some(item) = paths.get_mut(forms.path) {
                forms.accepted(item);
            }
        }
    }
}

impl FileForms {
    fn of(line: &'static str) -> Option<Self> {
        let mut cells = line.split(" | ");
        Some(Self {
            path: cells.next()?,
            csv: cells.next()?.replace('↵', "\n"),
            svg: cells.next(),
        })
    }

    /// Its forms, and how their paths end.
    fn formats(&self) -> impl Iterator<Item = (Format, &'static str)> {
        let drawn = self.svg.map(|_| (Format::SVG, ".svg"));
        [(Format::Csv, ".csv")].into_iter().chain(drawn)
    }

    /// The path of one form.
    fn file(&self, mut item: PathItem, format: Format, suffix: &str) -> PathItem {
        let Some(operation) = operation(&mut item) else {
            return item;
        };
        let name = if format == Format::Csv { "CSV" } else { "SVG" };
        let summary = operation.summary.take().unwrap_or_default();
        operation.summary = Some(format!("{summary}, as {name}"));
        let id = operation.operation_id.take().unwrap_or_default();
        operation.operation_id = Some(format!("{id}{}", suffix.replace('.', "_")));
        operation.description = Some(match format {
            Format::Csv => CSV_RULES.to_owned(),
            _ => format!("{}.", self.svg.unwrap_or_default()),
        });
        if let Some(RefOr::T(answer)) = operation.responses.responses.get_mut("200") {
            answer.content.clear();
            let content = self.content(format);
            answer
                .content
                .insert(format.media_type().to_owned(), RefOr::T(content));
        }
        item
    }

    /// Adds the forms to what the plain path answers.
    fn accepted(&self, item: &mut PathItem) {
        let responses = operation(item).map(|read| &mut read.responses.responses);
        if let Some(RefOr::T(answer)) = responses.and_then(|responses| responses.get_mut("200")) {
            for (format, _) in self.formats() {
                let kind = format.media_type().to_owned();
                answer.content.insert(kind, RefOr::T(self.content(format)));
            }
        }
    }

    fn content(&self, format: Format) -> Content {
        let text: Schema = ObjectBuilder::new().schema_type(Type::String).into();
        let content = ContentBuilder::new().schema(Some(text));
        let example = (format == Format::Csv).then(|| Value::from(&*self.csv));
        content.example(example).build()
    }
}

/// The read of a path.
fn operation(item: &mut PathItem) -> Option<&mut Operation> {
    item.get.as_mut().or(item.post.as_mut())
}
