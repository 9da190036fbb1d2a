/* A rule in C: shows that nothing of Rust crosses the border, and, by macros, every way to get the table wrong.
 *
 * Reports each marker, with what the tool answers about the 64 bytes at 0x1000. */
/* The table is declared in the header; some of these are none. */
#define brownout_rule_plugin declared_plugin
#include "brownout_rule.h"
#undef brownout_rule_plugin
#include <stdio.h>
#include <string.h>

typedef brownout_rule_bytes bytes;
typedef brownout_rule_place place;
typedef brownout_rule_site site;
typedef brownout_rule_info info;
typedef brownout_rule_event event;
typedef brownout_rule_status status;
typedef brownout_rule_finding_event finding_event;
typedef brownout_rule_finding finding;
typedef brownout_rule_host host;

/* As the tool has them. */
_Static_assert(sizeof(place) == 32 && sizeof(site) == 64 && sizeof(info) == 56, "sizes");
_Static_assert(sizeof(event) == 160 && sizeof(status) == 104 && sizeof(host) == 72, "sizes");
_Static_assert(sizeof(finding) == 72 && sizeof(finding_event) == 80, "sizes");
_Static_assert(sizeof(struct declared_plugin) == 48, "sizes");

#ifndef MAGIC
#define MAGIC BROWNOUT_RULE_MAGIC
#endif
#ifndef VERSION
#define VERSION BROWNOUT_RULE_VERSION
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
#define SEVERITY BROWNOUT_RULE_PERFORMANCE
#endif
#ifndef EVENT
#define EVENT on_event
#endif
#ifndef NEEDS
#define NEEDS 0
#endif

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
	if (e->kind != BROWNOUT_RULE_KIND_MARKER)
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
