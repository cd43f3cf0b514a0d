//! The id of a topic, by which one that is made again is told apart. The library for C tells it, and its wrapper does
//! not.

use std::ffi::{CStr, CString, c_char};
use std::ptr::NonNull;

use rdkafka::bindings::{
    rd_kafka_AdminOptions_destroy, rd_kafka_AdminOptions_new,
    rd_kafka_AdminOptions_set_request_timeout, rd_kafka_DescribeTopics,
    rd_kafka_DescribeTopics_result_topics, rd_kafka_TopicCollection_destroy,
    rd_kafka_TopicCollection_of_topic_names, rd_kafka_TopicDescription_error,
    rd_kafka_TopicDescription_partitions, rd_kafka_TopicDescription_t,
    rd_kafka_TopicDescription_topic_id, rd_kafka_TopicPartitionInfo_partition,
    rd_kafka_Uuid_base64str, rd_kafka_admin_op_t, rd_kafka_error_code, rd_kafka_error_string,
    rd_kafka_event_DescribeTopics_result, rd_kafka_event_destroy, rd_kafka_event_error,
    rd_kafka_event_error_string, rd_kafka_queue_destroy, rd_kafka_queue_new, rd_kafka_queue_poll,
    rd_kafka_resp_err_t,
};
use rdkafka::client::Client;
use rdkafka::consumer::DefaultConsumerContext;
use tallyring_realtime::SourceError;

use crate::kafka::ANSWER_WAIT;

/// A topic as the brokers describe it.
pub(super) struct Described {
    /// Its id, as Kafka's tools show it.
    pub id: String,
    /// Its partitions.
    pub partitions: Vec<u32>,
}

/// An object of the library, which is destroyed when dropped.
struct Owned<T>(NonNull<T>, unsafe extern "C" fn(*mut T));

impl<T> Owned<T> {
    fn new(made: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Result<Self, SourceError> {
        let made = NonNull::new(made);
        let made = made.ok_or_else(|| SourceError("the brokers do not answer".into()))?;
        Ok(Self(made, destroy))
    }

    fn get(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the object was made by the library, and nothing else destroys it.
        unsafe { (self.1)(self.get()) }
    }
}

/// Asks the brokers about a topic. Fails when they do not answer. The inner error is their answer: they do not know it,
/// say.
pub(super) fn topic(
    client: &Client<DefaultConsumerContext>,
    topic: &str,
) -> Result<Result<Described, SourceError>, SourceError> {
    let name = CString::new(topic).map_err(|_| SourceError("its name has a zero byte".into()))?;
    let mut names: [*const c_char; 1] = [name.as_ptr()];
    let wait = i32::try_from(ANSWER_WAIT.as_millis()).unwrap_or(i32::MAX);
    let mut error: [c_char; 256] = [0; 256];
    let client = client.native_ptr();
    // SAFETY: the client outlives the call, and every object lives to the end of it, the queue and the event among
    // them, which own what is read. The library copies the names.
    unsafe {
        let queue = Owned::new(rd_kafka_queue_new(client), rd_kafka_queue_destroy)?;
        let topics = Owned::new(
            rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len()),
            rd_kafka_TopicCollection_destroy,
        )?;
        let operation = rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
        let options = Owned::new(
            rd_kafka_AdminOptions_new(client, operation),
            rd_kafka_AdminOptions_destroy,
        )?;
        // A refusal leaves the default, which is longer.
        rd_kafka_AdminOptions_set_request_timeout(
            options.get(),
            wait,
            error.as_mut_ptr(),
            error.len(),
        );
        rd_kafka_DescribeTopics(client, topics.get(), options.get(), queue.get());
        let event = rd_kafka_queue_poll(queue.get(), wait.saturating_mul(2));
        let event = Owned::new(event, rd_kafka_event_destroy)?;
        if rd_kafka_event_error(event.get()) != rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(SourceError(text(rd_kafka_event_error_string(event.get()))));
        }
        let result = rd_kafka_event_DescribeTopics_result(event.get());
        if result.is_null() {
            return Err(SourceError("the client gave another answer".into()));
        }
        let mut count = 0;
        let found = rd_kafka_DescribeTopics_result_topics(result, &mut count);
        match count {
            1 => Ok(described(*found)),
            _ => Ok(Err(SourceError("the brokers told of no topic".into()))),
        }
    }
}

/// Reads a description.
///
/// # Safety
/// The description lives as long as the call.
unsafe fn described(topic: *const rd_kafka_TopicDescription_t) -> Result<Described, SourceError> {
    // SAFETY: the caller keeps the promise, and all that is read belongs to the description.
    unsafe {
        let error = rd_kafka_TopicDescription_error(topic);
        if !error.is_null()
            && rd_kafka_error_code(error) != rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
        {
            return Err(SourceError(text(rd_kafka_error_string(error))));
        }
        let id = rd_kafka_TopicDescription_topic_id(topic);
        if id.is_null() {
            return Err(SourceError("the brokers tell no id of it".into()));
        }
        let id = text(rd_kafka_Uuid_base64str(id));
        // Brokers of old give each topic the id zero.
        if id.bytes().all(|byte| byte == b'A') {
            return Err(SourceError("the brokers tell no id of it".into()));
        }
        let mut count = 0;
        let found = rd_kafka_TopicDescription_partitions(topic, &mut count);
        let numbers = (0..count).map(|at| rd_kafka_TopicPartitionInfo_partition(*found.add(at)));
        let partitions = numbers.filter_map(|number| u32::try_from(number).ok());
        Ok(Described {
            id,
            partitions: partitions.collect(),
        })
    }
}

/// A text of the library; empty where there is none.
///
/// # Safety
/// It is null, or ends with a zero byte and lives as long as the call.
unsafe fn text(text: *const c_char) -> String {
    match text.is_null() {
        true => String::new(),
        // SAFETY: the caller keeps the promise.
        false => unsafe { CStr::from_ptr(text).to_string_lossy().into_owned() },
    }
}
