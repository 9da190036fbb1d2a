/* A rule in C: shows that nothing of Rust crosses the border, and, by macros, every way to get the table wrong.
 *
 * Reports each marker, with what the tool answers about the 64 bytes at 0x1000. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct { const char *data; size_t len; } bytes;
typedef struct { uint64_t address, len, offset; uint32_t file, reserved; } place;
typedef struct { uint64_t index, pc; uint32_t context, thread, process, kind; place place; } site;
typedef struct { uint32_t size, severity, needs, reserved; uint64_t kinds; bytes id, summary; } info;
typedef struct {
	uint32_t size, kind;
	uint64_t index, pc;
	uint32_t context, thread, process, code, flags, reserved;
	place place;
	uint64_t args[6];
	bytes bytes, text;
} event;
typedef struct { uint32_t size, state; place place; site store; } status;
typedef struct { site site; bytes text; } finding_event;
typedef struct {
	uint32_t size, reserved;
	bytes message;
	const finding_event *events; size_t event_count;
	const bytes *help; size_t help_count;
	const bytes *notes; size_t note_count;
} finding;
typedef struct {
	uint32_t version, size, event_size, status_size;
	void (*fail)(void *call, bytes message);
	uint32_t (*is_persisted)(void *call, place);
	uint32_t (*is_ordered_before)(void *call, place, place);
	void (*status)(void *call, place, void (*visit)(void *, const status *), void *data);
	uint32_t (*in_transaction)(void *call, uint32_t thread);
	uint32_t (*is_logged)(void *call, uint32_t thread, place);
	void (*report)(void *call, const finding *);
} host;

#ifndef MAGIC
#define MAGIC 0x4c55524e574f5242 /* "BROWNRUL" */
#endif
#ifndef VERSION
#define VERSION 1
#endif
#ifndef SIZE
#define SIZE sizeof(struct table)
#endif
#ifndef NAME
#define NAME brownout_rule_plugin
#endif
#ifndef ID
#define ID "c-rule"
#endif
#ifndef SEVERITY
#define SEVERITY 1
#endif
#ifndef EVENT
#define EVENT on_event
#endif
#ifndef NEEDS
#define NEEDS 0
#endif

enum { MARKER = 24 };

static bytes text(const char *s) { return (bytes){s, strlen(s)}; }

static int instance;

static void *create(const host *h, void *call, bytes options, info *info)
{
	if (options.len == 6 && memcmp(options.data, "silent", 6) == 0)
		return NULL;
	if (options.len != 0) {
		h->fail(call, text("it takes no options"));
		return NULL;
	}
	info->severity = SEVERITY;
	info->needs = NEEDS;
	info->id = text(ID);
	info->summary = text("reports every marker");
	return &instance;
}

struct seen { const host *h; void *call; char *to; };

static void visit(void *data, const status *s)
{
	struct seen *seen = data;
	/* A question inside a question. */
	unsigned persisted = seen->h->is_persisted(seen->call, s->place);
	seen->to += sprintf(seen->to, " %#llx+%llu state %u by thread %u at %llu persisted %u;",
		(unsigned long long)s->place.address, (unsigned long long)s->place.len, s->state,
		s->store.thread, (unsigned long long)s->store.index, persisted);
}

static uint32_t on_event(void *self, const host *h, void *call, const event *e)
{
	if (e->kind != MARKER)
		return 0;
	if (e->text.len == 4 && memcmp(e->text.data, "fail", 4) == 0)
		return 7;
	place r = {0x1000, 64}, other = {0x2000, 8}; /* by address: file 0 */
	char line[400];
	int n = sprintf(line, "ordered %u%u, in transaction %u%u, logged %u%u:",
		h->is_ordered_before(call, r, other), h->is_ordered_before(call, other, r),
		h->in_transaction(call, 1), h->in_transaction(call, 2),
		h->is_logged(call, 1, r), h->is_logged(call, 2, r));
	struct seen seen = {h, call, line + n};
	h->status(call, r, visit, &seen);
	site here = {e->index, e->pc, e->context, e->thread, e->process, e->kind, e->place};
	finding_event events[] = {{here, text("here")}, {{0}, {NULL, 0}}};
	bytes help[] = {text("one"), {"\xff!", 2}};
	bytes notes[] = {text(line)};
	finding f = {sizeof f, 0, e->text, events, 2, help, 2, notes, 1};
	h->report(call, &f);
	return self == &instance ? 0 : 1;
}

static uint32_t end(void *self, const host *h, void *call)
{
	/* No pointer that is not needed. */
	finding f = {.size = sizeof f, .message = text("over")};
	h->report(call, &f);
	(void)self;
	return 0;
}

static void destroy(void *self) { (void)self; }

struct table {
	uint64_t magic;
	uint32_t version, size;
	void *(*create)(const host *, void *, bytes, info *);
	uint32_t (*event)(void *, const host *, void *, const event *);
	uint32_t (*end)(void *, const host *, void *);
	void (*destroy)(void *);
#ifdef NEWER
	void (*not_invented_yet)(void *);
#endif
};

#if defined HEAD_ONLY
/* Says that it is longer than it is. */
const struct { uint64_t magic; uint32_t version, size; } NAME = {MAGIC, VERSION, SIZE};
#elif defined TINY
const uint64_t NAME = MAGIC;
#else
const struct table NAME = {MAGIC, VERSION, SIZE, create, EVENT, end, destroy};
#endif
