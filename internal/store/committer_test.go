package store

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// parts parses a commit: a key that is written, or one followed by ? that is checked at revision 1,
// by ! at revision 2. F and G at the end are fences.
func parts(text string) *commitRequest {
	r := &commitRequest{result: make(chan error, 1)}
	for word := range strings.FieldsSeq(text) {
		if word == "F" || word == "G" {
			r.fence = &Fence{Key: word}
			continue
		}
		c := Change{condition: Any}
		if key := strings.TrimRight(word, "?!"); key != word {
			c.checkOnly, c.condition = true, IfRev(1)
			if strings.HasSuffix(word, "!") {
				c.condition = IfRev(2)
			}
			word = key
		}
		r.keys, r.changes = append(r.keys, word), append(r.changes, c)
		r.bytes += 10
	}
	return r
}

// picked returns which requests of a queue, numbered from 1, are in the next transaction, and which
// stay in the queue.
func picked(limits Limits, busy, queue string) (batch, left string) {
	c := &committer{store: &Store{limits: limits}, busyKeys: map[string]struct{}{}}
	for key := range strings.FieldsSeq(busy) {
		c.busyKeys[key] = struct{}{}
	}
	number := map[*commitRequest]int{}
	for text := range strings.SplitSeq(queue, ",") {
		r := parts(text)
		c.queue = append(c.queue, r)
		number[r] = len(c.queue)
	}
	for _, r := range c.pickLocked() {
		batch += fmt.Sprint(number[r])
	}
	for _, r := range c.queue {
		left += fmt.Sprint(number[r])
	}
	return batch, left
}

// TestPickKeepsOrder: the picked requests write no key twice, and none overtakes an older write of
// its keys.
func TestPickKeepsOrder(t *testing.T) {
	for _, c := range []struct{ name, busy, queue, batch string }{
		{"apart", "", "a,b,c", "123"},
		{"one key twice", "", "a,a,b", "13"},
		{"a key under way", "a", "a,b", "2"},
		{"all under way", "a b", "a,b", ""},
		{"behind one that waits", "a", "a b,b c,c,d", "4"},
		{"a check of a key under way", "a", "a?,b", "2"},
		{"a check behind a write that waits", "a", "a b,b?,c", "3"},
		{"a check keeps nobody back", "a", "a b?,b,c", "23"},
		{"checks of one key share", "", "a?,a?,b a?", "123"},
		{"checks of one key at two revisions", "", "a?,a!,b", "13"},
		{"a write behind a check", "", "a?,a", "12"},
		{"a check behind a write", "", "a,a?", "1"},
		{"one fence", "", "a F,b F,c", "123"},
		{"two fences", "", "a F,b G,c", "13"},
	} {
		batch, left := picked(Limits{MaxOps: 100, MaxBytes: 1000}, c.busy, c.queue)
		want := ""
		for i := range strings.Count(c.queue, ",") + 1 {
			if no := fmt.Sprint(i + 1); !strings.Contains(c.batch, no) {
				want += no
			}
		}
		if batch != c.batch || left != want {
			t.Errorf("%s: takes %s and leaves %s, want %s and %s", c.name, batch, left, c.batch, want)
		}
	}
}

// TestPickKeepsLimits: a transaction reserves operations for the lane's write and compare, and for
// the compare of a fence.
func TestPickKeepsLimits(t *testing.T) {
	for _, c := range []struct {
		name, queue, batch string
		limits             Limits
	}{
		{"writes", "a,b,c,d", "123", Limits{MaxOps: 4, MaxBytes: 1000}},
		{"a write of three keys", "a b c", "1", Limits{MaxOps: 4, MaxBytes: 1000}},
		{"a smaller one fits", "a b,c d,e", "13", Limits{MaxOps: 4, MaxBytes: 1000}},
		{"checks", "a?,b?,c?", "12", Limits{MaxOps: 4, MaxBytes: 1000}},
		{"a check that is there already", "a? b?,c? d?,d a?", "13", Limits{MaxOps: 5, MaxBytes: 1000}},
		{"bytes", "a b,c,d", "12", Limits{MaxOps: 100, MaxBytes: 30}},
	} {
		if batch, _ := picked(c.limits, "", c.queue); batch != c.batch {
			t.Errorf("%s: takes %s, want %s", c.name, batch, c.batch)
		}
	}
}

// TestRequestsAreChecked: invalid requests are refused before anything is sent.
func TestRequestsAreChecked(t *testing.T) {
	table, other := NewTable[fact]("k"), NewTable[fact]("other")
	s := &Store{recordPrefix: "/p/v1/", limits: Limits{MaxOps: reservedOps +
		2, MaxBytes: 100}, model: newModel(newDispatcher())}
	s.model.tables["k"] = table
	text := NewTable("text", WithCodec(func(v *string) ([]byte, error) { return []byte(*v), nil },
		func([]byte) (*string, error) { return new(string), nil }))
	s.model.tables["text"] = text
	sized := func(n int) Change { v := strings.Repeat("x", n); return Put(text, "i", &v, Any) }
	const key = len("/p/v1/text/i")
	one := func(id string) Change { return Put(table, id, &fact{}, Any) }
	for name, c := range map[string]struct {
		changes []Change
		want    string // "": it is good
	}{
		"nothing":          {nil, "0 changes"},
		"two":              {[]Change{one("a"), one("b")}, ""},
		"three":            {[]Change{one("a"), one("b"), one("c")}, "3 changes in one commit: want 1 to 2"},
		"one record twice": {[]Change{one("a"), Delete(table, "a", Any)}, "record /p/v1/k/a is changed twice"},
		"no id":            {[]Change{one("")}, "record ID of 0 bytes"},
		"a long id": {
			[]Change{Delete(table, strings.Repeat("x", maxIDBytes+1), Any)},
			"record ID of 513 bytes",
		},
		"another table":        {[]Change{Put(other, "a", &fact{}, Any)}, `table "other" is not open`},
		"nil":                  {[]Change{Put[fact](table, "a", nil, Any)}, "is nil"},
		"a check of nothing":   {[]Change{Check(table, "a", Any)}, "without a condition"},
		"just within its size": {[]Change{sized(100 - key)}, ""},
		"too large":            {[]Change{sized(101 - key)}, "commit of 101 bytes: limit 100"},
		"a record too large":   {[]Change{sized(MaxBytes + 1)}, "record of 1048577 bytes"},
	} {
		_, err := s.newCommitRequest(nil, c.changes)
		if (err == nil) != (c.want == "") ||
			err != nil && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, id := range []string{"a", strings.Repeat("x", maxIDBytes)} {
		if err := Delete(table, id, Any).Err(); err != nil {
			t.Errorf("an id of %d bytes: %v", len(id), err)
		}
	}
	if err := sized(MaxBytes).Err(); err != nil {
		t.Errorf("the largest record: %v", err)
	}
}

// TestKnownRecordsAreNotDecoded: an event of an own commit costs nothing more.
func TestKnownRecordsAreNotDecoded(t *testing.T) {
	decoded := 0
	table := NewTable("k", WithCodec(func(*fact) ([]byte, error) { return nil, nil },
		func([]byte) (*fact, error) { decoded++; return &fact{}, nil }))
	s := &Store{
		recordPrefix: "/p/v1/", model: newModel(newDispatcher()), log: slog.New(slog.DiscardHandler),
		meta: NewTable[storeMeta](metaKind),
	}
	s.model.tables["k"], s.model.tables[metaKind] = table, s.meta
	s.model.applyCommitted(5, []tableUpdate{{table: table, id: "x", key: "k/x", record: &fact{5}, rev: 5}})
	for rev, want := range map[int64]int{5: 0, 6: 1} {
		kv := KV{Key: "/p/v1/k/x", ModRev: rev}
		if decoded = 0; len(s.decodeEvents([]RawEvent{{KV: kv}})) != want || decoded != want {
			t.Errorf("an event of revision %d: %d decoded, want %d", rev, decoded, want)
		}
		for _, all := range []bool{false, true} {
			l := listing{seen: map[string]struct{}{}}
			wanted := want
			if all {
				wanted = 1
			}
			if got := s.recordPage(&l, []KV{kv, {Key: "/p/v1/unknown/x", ModRev: 1}}, all); len(got) != wanted ||
				len(l.seen) != 1 {
				t.Errorf("a listing, all %t, at revision %d: %d to decode, %d seen", all, rev, len(got), len(l.seen))
			}
		}
	}
}

func TestEpochOfAListing(t *testing.T) {
	s := &Store{}
	list := []tableUpdate{
		{id: "x", record: &fact{}},
		{id: schemaID, record: &storeMeta{Version: 1}},
		{id: epochID, record: &storeMeta{Epoch: "e"}},
	}
	if got := s.findEpoch(list); got != "e" || s.findEpoch(list[:2]) != "" {
		t.Errorf("epoch %q", got)
	}
}

// TestMovedReportsProgress: the channel closes when the watch has passed another revision, and not
// before.
func TestMovedReportsProgress(t *testing.T) {
	l := newLine()
	l.applyWatched(5, nil)
	_, _, moved := l.watchProgress()
	for _, rev := range []int64{4, 5} {
		l.applyWatched(rev, nil)
	}
	select {
	case <-moved:
		t.Error("it moved without progress")
	default:
	}
	l.applyWatched(6, nil)
	select {
	case <-moved:
	default:
		t.Error("it did not move")
	}
	if watched, highest, _ := l.watchProgress(); watched != 6 || highest != 6 {
		t.Errorf("watched %d, highest %d", watched, highest)
	}
}
