-- forget_digest_delete
CREATE TRIGGER forget_digest_delete after delete on traces
begin delete from trace_digests where block = old.seq >> 10; end

-- forget_digest_insert
CREATE TRIGGER forget_digest_insert after insert on traces
begin delete from trace_digests where block = new.seq >> 10; end

-- forget_digest_update
CREATE TRIGGER forget_digest_update after update on traces
begin delete from trace_digests where block = new.seq >> 10; end

-- alembic_version
CREATE TABLE alembic_version (version_num varchar(32) not null, constraint alembic_version_pkc primary key (version_num))

-- alerts
CREATE TABLE alerts (
	seq INTEGER NOT NULL, 
	fingerprint TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	rule TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	slot TEXT NOT NULL, 
	severity TEXT NOT NULL, 
	state TEXT NOT NULL, 
	change TEXT NOT NULL, 
	tells BOOLEAN NOT NULL, 
	value FLOAT, 
	bound FLOAT, 
	says TEXT NOT NULL, 
	evidence JSON NOT NULL, 
	began_at INTEGER NOT NULL, 
	fired_at INTEGER, 
	told_at INTEGER, 
	acknowledged_by TEXT NOT NULL, 
	at INTEGER NOT NULL, 
	who TEXT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (fingerprint, number)
)

-- assignments
CREATE TABLE assignments (
	seq INTEGER NOT NULL, 
	rollout_id TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	arm TEXT NOT NULL, 
	event INTEGER NOT NULL, 
	why TEXT NOT NULL, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (rollout_id, unit)
)

-- attempts
CREATE TABLE attempts (
	seq INTEGER NOT NULL, 
	run_id TEXT NOT NULL, 
	id TEXT NOT NULL, 
	task_id TEXT NOT NULL, 
	candidate_id TEXT NOT NULL, 
	domain TEXT NOT NULL, 
	split TEXT NOT NULL, 
	total FLOAT, 
	tokens INTEGER, 
	cost FLOAT, 
	started_at DATETIME NOT NULL, 
	trace INTEGER, 
	changed JSON, 
	unread JSON, 
	score JSON NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (run_id, id), 
	FOREIGN KEY(run_id) REFERENCES runs (id), 
	FOREIGN KEY(trace) REFERENCES traces (seq)
)

-- audit
CREATE TABLE audit (
	seq INTEGER NOT NULL, 
	actor TEXT NOT NULL, 
	action TEXT NOT NULL, 
	target TEXT NOT NULL, 
	"before" JSON, 
	"after" JSON, 
	reason TEXT NOT NULL, 
	at INTEGER NOT NULL, 
	previous TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (previous)
)

-- candidates
CREATE TABLE candidates (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	body TEXT NOT NULL, 
	parents JSON NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (id)
)

-- content_words
CREATE VIRTUAL TABLE content_words using fts5(words, content = '', tokenize = 'unicode61 remove_diacritics 2')

-- content_words_config
CREATE TABLE 'content_words_config'(k PRIMARY KEY, v) WITHOUT ROWID

-- content_words_data
CREATE TABLE 'content_words_data'(id INTEGER PRIMARY KEY, block BLOB)

-- content_words_docsize
CREATE TABLE 'content_words_docsize'(id INTEGER PRIMARY KEY, sz BLOB)

-- content_words_idx
CREATE TABLE 'content_words_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID

-- contents
CREATE TABLE contents (
	seq INTEGER NOT NULL, 
	digest TEXT NOT NULL, 
	size INTEGER NOT NULL, 
	"indexed" BOOLEAN NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (digest)
)

-- document_words
CREATE VIRTUAL TABLE document_words using fts5(words, content = '', tokenize = 'unicode61 remove_diacritics 2')

-- document_words_config
CREATE TABLE 'document_words_config'(k PRIMARY KEY, v) WITHOUT ROWID

-- document_words_data
CREATE TABLE 'document_words_data'(id INTEGER PRIMARY KEY, block BLOB)

-- document_words_docsize
CREATE TABLE 'document_words_docsize'(id INTEGER PRIMARY KEY, sz BLOB)

-- document_words_idx
CREATE TABLE 'document_words_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID

-- documents
CREATE TABLE documents (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	source TEXT NOT NULL, 
	place TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	title TEXT NOT NULL, 
	author TEXT, 
	at INTEGER, 
	raw JSON NOT NULL, 
	body BLOB NOT NULL, 
	collected_at INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (id)
)

-- evaluations
CREATE TABLE evaluations (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	candidate_id TEXT NOT NULL, 
	baseline_id TEXT NOT NULL, 
	held_out_id TEXT NOT NULL, 
	passed BOOLEAN NOT NULL, 
	reason TEXT NOT NULL, 
	report JSON NOT NULL, 
	at DATETIME NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (id)
)

-- evidence
CREATE TABLE evidence (
	seq INTEGER NOT NULL, 
	rollout_id TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	upto INTEGER NOT NULL, 
	state JSON NOT NULL, 
	summary JSON NOT NULL, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (rollout_id, number)
)

-- feedback
CREATE TABLE feedback (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	target_kind TEXT NOT NULL, 
	target TEXT NOT NULL, 
	metric TEXT NOT NULL, 
	value FLOAT, 
	text TEXT, 
	source TEXT NOT NULL, 
	rater TEXT, 
	tags JSON NOT NULL, 
	at INTEGER NOT NULL, 
	received_at INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (id)
)

-- learn_orders
CREATE TABLE learn_orders (
	seq INTEGER NOT NULL, 
	verb TEXT NOT NULL, 
	who TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (seq)
)

-- leases
CREATE TABLE leases (
	seq INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	generation INTEGER NOT NULL, 
	until INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (name)
)

-- looks
CREATE TABLE looks (
	seq INTEGER NOT NULL, 
	held_out_id TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	candidate_id TEXT NOT NULL, 
	evaluation_id TEXT NOT NULL, 
	at DATETIME NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (held_out_id, number), 
	UNIQUE (held_out_id, candidate_id, evaluation_id)
)

-- mirrored_calls
CREATE TABLE mirrored_calls (
	seq INTEGER NOT NULL, 
	rollout_id TEXT NOT NULL, 
	pair TEXT NOT NULL, 
	arm TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	trace_id TEXT NOT NULL, 
	failed BOOLEAN NOT NULL, 
	seconds FLOAT, 
	cost FLOAT, 
	tokens INTEGER, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (rollout_id, pair, arm)
)

-- moves
CREATE TABLE moves (
	seq INTEGER NOT NULL, 
	candidate_id TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	stage TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	forced BOOLEAN NOT NULL, 
	at DATETIME NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (candidate_id, number)
)

-- outbox
CREATE TABLE outbox (
	seq INTEGER NOT NULL, 
	fingerprint TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	channel TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	status TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	due_at INTEGER NOT NULL, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (fingerprint, number, channel, attempt, status)
)

-- part_words
CREATE VIRTUAL TABLE part_words using fts5(words, content = '', tokenize = 'unicode61 remove_diacritics 2')

-- part_words_config
CREATE TABLE 'part_words_config'(k PRIMARY KEY, v) WITHOUT ROWID

-- part_words_data
CREATE TABLE 'part_words_data'(id INTEGER PRIMARY KEY, block BLOB)

-- part_words_docsize
CREATE TABLE 'part_words_docsize'(id INTEGER PRIMARY KEY, sz BLOB)

-- part_words_idx
CREATE TABLE 'part_words_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID

-- rollout_events
CREATE TABLE rollout_events (
	seq INTEGER NOT NULL, 
	rollout_id TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	shares JSON NOT NULL, 
	reason TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	evidence JSON NOT NULL, 
	forced BOOLEAN NOT NULL, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (rollout_id, number), 
	FOREIGN KEY(rollout_id) REFERENCES rollouts (id)
)

-- rollouts
CREATE TABLE rollouts (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	slot TEXT NOT NULL, 
	body JSON NOT NULL, 
	created_at INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (id)
)

-- run_marks
CREATE TABLE run_marks (
	seq INTEGER NOT NULL, 
	run_id TEXT NOT NULL, 
	state TEXT NOT NULL, 
	at DATETIME NOT NULL, 
	result JSON, 
	PRIMARY KEY (seq), 
	UNIQUE (run_id, at, state), 
	FOREIGN KEY(run_id) REFERENCES runs (id)
)

-- runs
CREATE TABLE runs (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	config JSON NOT NULL, 
	started_at DATETIME NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (id)
)

-- samples
CREATE TABLE samples (
	seq INTEGER NOT NULL, 
	host TEXT NOT NULL, 
	process TEXT NOT NULL, 
	cpu FLOAT, 
	memory FLOAT, 
	memory_bytes INTEGER, 
	gpu FLOAT, 
	gpu_memory FLOAT, 
	disk FLOAT, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (seq)
)

-- scopes
CREATE TABLE scopes (
	seq INTEGER NOT NULL, 
	digest TEXT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (digest)
)

-- served_calls
CREATE TABLE served_calls (
	seq INTEGER NOT NULL, 
	rollout_id TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	call_id TEXT NOT NULL, 
	trace_id TEXT NOT NULL, 
	failed BOOLEAN NOT NULL, 
	seconds FLOAT, 
	cost FLOAT, 
	tokens INTEGER, 
	at INTEGER NOT NULL, 
	recorded_at INTEGER, 
	PRIMARY KEY (seq), 
	UNIQUE (rollout_id, call_id)
)

-- served_models
CREATE TABLE served_models (
	seq INTEGER NOT NULL, 
	candidate_id TEXT NOT NULL, 
	url TEXT NOT NULL, 
	model TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	file TEXT NOT NULL, 
	replaces JSON NOT NULL, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (seq)
)

-- session_scores
CREATE TABLE session_scores (
	seq INTEGER NOT NULL, 
	rollout_id TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	metric TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	value FLOAT, 
	sources JSON NOT NULL, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (rollout_id, unit, metric, version)
)

-- silences
CREATE TABLE silences (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	rule TEXT NOT NULL, 
	about TEXT NOT NULL, 
	until INTEGER NOT NULL, 
	who TEXT NOT NULL, 
	why TEXT NOT NULL, 
	at INTEGER NOT NULL, 
	lifted_by TEXT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (id, number)
)

-- slot_moves
CREATE TABLE slot_moves (
	seq INTEGER NOT NULL, 
	slot TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	candidate_id TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	rollout_id TEXT, 
	reason TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (slot, number)
)

-- source_states
CREATE TABLE source_states (
	seq INTEGER NOT NULL, 
	source TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	state JSON NOT NULL, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (source, "key")
)

-- span_traces
CREATE TABLE span_traces (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	kept INTEGER NOT NULL, 
	read INTEGER NOT NULL, 
	began INTEGER NOT NULL, 
	since INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (id)
)

-- spans
CREATE TABLE spans (
	seq INTEGER NOT NULL, 
	trace INTEGER NOT NULL, 
	span_id TEXT NOT NULL, 
	at INTEGER NOT NULL, 
	scope INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (trace, span_id), 
	FOREIGN KEY(trace) REFERENCES span_traces (seq) ON DELETE CASCADE, 
	FOREIGN KEY(scope) REFERENCES scopes (seq)
)

-- trace_calls
CREATE TABLE trace_calls (
	seq INTEGER NOT NULL, 
	trace INTEGER NOT NULL, 
	call_id TEXT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (trace, call_id), 
	FOREIGN KEY(trace) REFERENCES traces (seq) ON DELETE CASCADE
)

-- trace_candidates
CREATE TABLE trace_candidates (
	seq INTEGER NOT NULL, 
	trace INTEGER NOT NULL, 
	candidate_id TEXT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (trace, candidate_id), 
	FOREIGN KEY(trace) REFERENCES traces (seq) ON DELETE CASCADE
)

-- trace_contents
CREATE TABLE trace_contents (
	seq INTEGER NOT NULL, 
	trace INTEGER NOT NULL, 
	content INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (trace, content), 
	FOREIGN KEY(trace) REFERENCES traces (seq) ON DELETE CASCADE, 
	FOREIGN KEY(content) REFERENCES contents (seq)
)

-- trace_digests
CREATE TABLE trace_digests (
	block INTEGER NOT NULL, 
	format INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (block)
)

-- trace_labels
CREATE TABLE trace_labels (
	seq INTEGER NOT NULL, 
	trace INTEGER NOT NULL, 
	good BOOLEAN, 
	who TEXT NOT NULL, 
	at INTEGER NOT NULL, 
	probability FLOAT, 
	PRIMARY KEY (seq), 
	FOREIGN KEY(trace) REFERENCES traces (seq) ON DELETE CASCADE
)

-- trace_models
CREATE TABLE trace_models (
	seq INTEGER NOT NULL, 
	trace INTEGER NOT NULL, 
	model TEXT NOT NULL, 
	calls INTEGER NOT NULL, 
	input_tokens INTEGER NOT NULL, 
	output_tokens INTEGER NOT NULL, 
	uncounted INTEGER NOT NULL, 
	cost FLOAT NOT NULL, 
	unpriced INTEGER NOT NULL, 
	seconds FLOAT, 
	PRIMARY KEY (seq), 
	UNIQUE (trace, model), 
	FOREIGN KEY(trace) REFERENCES traces (seq) ON DELETE CASCADE
)

-- trace_parts
CREATE TABLE trace_parts (
	seq INTEGER NOT NULL, 
	trace INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (trace, position), 
	FOREIGN KEY(trace) REFERENCES traces (seq) ON DELETE CASCADE
)

-- trace_responses
CREATE TABLE trace_responses (
	seq INTEGER NOT NULL, 
	trace INTEGER NOT NULL, 
	response_id TEXT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (trace, response_id), 
	FOREIGN KEY(trace) REFERENCES traces (seq) ON DELETE CASCADE
)

-- trace_rewards
CREATE TABLE trace_rewards (
	seq INTEGER NOT NULL, 
	trace INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	value FLOAT, 
	evidence TEXT NOT NULL, 
	weight FLOAT NOT NULL, 
	"by" TEXT NOT NULL, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	FOREIGN KEY(trace) REFERENCES traces (seq) ON DELETE CASCADE
)

-- trace_tools
CREATE TABLE trace_tools (
	seq INTEGER NOT NULL, 
	trace INTEGER NOT NULL, 
	tool TEXT NOT NULL, 
	calls INTEGER NOT NULL, 
	failures INTEGER NOT NULL, 
	timed INTEGER NOT NULL, 
	seconds FLOAT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (trace, tool), 
	FOREIGN KEY(trace) REFERENCES traces (seq) ON DELETE CASCADE
)

-- traces
CREATE TABLE traces (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	title TEXT NOT NULL, 
	agent TEXT, 
	session TEXT, 
	task_id TEXT NOT NULL, 
	domain TEXT NOT NULL, 
	source TEXT NOT NULL, 
	candidate_id TEXT NOT NULL, 
	models JSON NOT NULL, 
	started_at INTEGER NOT NULL, 
	seconds FLOAT, 
	model_calls INTEGER NOT NULL, 
	tool_calls INTEGER NOT NULL, 
	failed_tool_calls INTEGER NOT NULL, 
	input_tokens INTEGER, 
	output_tokens INTEGER, 
	cost FLOAT, 
	error TEXT, 
	failed BOOLEAN NOT NULL, 
	own_label BOOLEAN, 
	label BOOLEAN, 
	labelled_by TEXT, 
	reward FLOAT, 
	steps INTEGER NOT NULL, 
	identified INTEGER NOT NULL, 
	duplicate_of INTEGER, 
	PRIMARY KEY (seq), 
	UNIQUE (id)
)

-- turn_events
CREATE TABLE turn_events (
	seq INTEGER NOT NULL, 
	turn_id TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	at INTEGER NOT NULL, 
	cost FLOAT, 
	cpu_seconds FLOAT NOT NULL, 
	looks INTEGER NOT NULL, 
	candidate TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	report JSON NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (turn_id, number)
)

-- turns
CREATE TABLE turns (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	domain TEXT NOT NULL, 
	began INTEGER NOT NULL, 
	parent TEXT NOT NULL, 
	"trigger" TEXT NOT NULL, 
	data_digest TEXT NOT NULL, 
	seen INTEGER NOT NULL, 
	"before" JSON NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (id)
)

-- ix_alerts_at
CREATE INDEX ix_alerts_at ON alerts (at)

-- ix_attempts_candidate_id
CREATE INDEX ix_attempts_candidate_id ON attempts (candidate_id)

-- ix_attempts_domain
CREATE INDEX ix_attempts_domain ON attempts (domain)

-- ix_attempts_started_at
CREATE INDEX ix_attempts_started_at ON attempts (started_at)

-- ix_attempts_task_id
CREATE INDEX ix_attempts_task_id ON attempts (task_id)

-- ix_attempts_trace
CREATE INDEX ix_attempts_trace ON attempts (trace)

-- ix_documents_key
CREATE INDEX ix_documents_key ON documents (source, place, "key", seq)

-- ix_evaluations_candidate_id
CREATE INDEX ix_evaluations_candidate_id ON evaluations (candidate_id)

-- ix_evaluations_held_out_id
CREATE INDEX ix_evaluations_held_out_id ON evaluations (held_out_id)

-- ix_feedback_target
CREATE INDEX ix_feedback_target ON feedback (target_kind, target, metric)

-- ix_mirrored_calls_trace_id
CREATE INDEX ix_mirrored_calls_trace_id ON mirrored_calls (trace_id)

-- ix_rollouts_slot
CREATE INDEX ix_rollouts_slot ON rollouts (slot)

-- ix_samples_at
CREATE INDEX ix_samples_at ON samples (at)

-- ix_served_calls_trace_id
CREATE INDEX ix_served_calls_trace_id ON served_calls (trace_id)

-- ix_served_calls_unit
CREATE INDEX ix_served_calls_unit ON served_calls (rollout_id, unit)

-- ix_served_models_candidate_id
CREATE INDEX ix_served_models_candidate_id ON served_models (candidate_id)

-- ix_span_traces_pending
CREATE INDEX ix_span_traces_pending ON span_traces (since) WHERE kept > read

-- ix_spans_scope
CREATE INDEX ix_spans_scope ON spans (scope)

-- ix_trace_calls_call_id
CREATE INDEX ix_trace_calls_call_id ON trace_calls (call_id)

-- ix_trace_candidates_candidate_id
CREATE INDEX ix_trace_candidates_candidate_id ON trace_candidates (candidate_id, trace)

-- ix_trace_contents_content
CREATE INDEX ix_trace_contents_content ON trace_contents (content)

-- ix_trace_labels_trace
CREATE INDEX ix_trace_labels_trace ON trace_labels (trace)

-- ix_trace_models_model
CREATE INDEX ix_trace_models_model ON trace_models (model, trace)

-- ix_trace_responses_response_id
CREATE INDEX ix_trace_responses_response_id ON trace_responses (response_id, trace)

-- ix_trace_rewards_trace
CREATE INDEX ix_trace_rewards_trace ON trace_rewards (trace)

-- ix_trace_tools_tool
CREATE INDEX ix_trace_tools_tool ON trace_tools (tool, trace)

-- ix_traces_agent
CREATE INDEX ix_traces_agent ON traces (agent, started_at)

-- ix_traces_list
CREATE INDEX ix_traces_list ON traces (started_at, seq, duplicate_of, agent, session, task_id, domain, source, candidate_id, failed, label, labelled_by, reward)

-- ix_traces_session
CREATE INDEX ix_traces_session ON traces (session, started_at, duplicate_of)

-- ix_traces_task_id
CREATE INDEX ix_traces_task_id ON traces (task_id)

