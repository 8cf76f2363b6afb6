package central

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/logs/logparse"
)

// TestEntries: rows of several machines are merged, a file is read page by page, and filters apply.
func TestEntries(t *testing.T) {
	c := newClock()
	l := open(t, t.TempDir(), Options{Now: c.Now})
	levels := []string{"debug", "info", "warn", "error"}
	for i := range 40 {
		machine := fmt.Sprintf("m%d", i%2)
		add(t, l, row("node", machine, fmt.Sprintf(`level=%s msg="row %02d" n=%d`, levels[i%4], i, i)))
		c.advance(time.Second)
	}
	find := func(q EntryQuery) (list []string, complete bool, before int64) {
		t.Helper()
		out, err := l.Entries("node", q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range out.Entries {
			list = append(list, strings.TrimPrefix(e.Message, "row "))
		}
		return list, out.Complete, out.Before
	}
	got, complete, _ := find(EntryQuery{Limit: MaxEntries})
	if len(got) != 40 || !slices.IsSorted(got) || !complete {
		t.Errorf("all: %v, %t", got, complete)
	}
	got, complete, _ = find(EntryQuery{Limit: 3})
	if !slices.Equal(got, []string{"37", "38", "39"}) || complete {
		t.Errorf("the last three: %v, %t", got, complete)
	}
	got, _, _ = find(EntryQuery{Limit: 3, Filter: logparse.Filter{Level: "error"}})
	if !slices.Equal(got, []string{"31", "35", "39"}) {
		t.Errorf("errors: %v", got)
	}
	since := c.Now().UTC().Add(-5 * time.Second)
	got, complete, _ = find(EntryQuery{Limit: 100, Filter: logparse.Filter{Since: since}})
	if !slices.Equal(got, []string{"35", "36", "37", "38", "39"}) || !complete {
		t.Errorf("since: %v, %t", got, complete)
	}

	file := names(t, l, "node")[0]
	var all []string
	for before := int64(0); ; {
		page, complete, next := find(EntryQuery{File: file, Limit: 6, Before: before})
		all = append(page, all...)
		if complete {
			break
		}
		if before = next; next == 0 || len(all) > 20 {
			t.Fatalf("page %v continues at %d", page, next)
		}
	}
	if len(all) != 20 || !slices.IsSorted(all) {
		t.Errorf("pages: %v", all)
	}

	if _, err := l.Entries("other", EntryQuery{Limit: 1}); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("unknown service: %v", err)
	}
	if _, err := l.Entries("node", EntryQuery{Limit: 1, Before: 9}); farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("before without a file: %v", err)
	}
	if err := l.AppendEvents([][]byte{[]byte(`{"name":"StartVM","time":7}`)}); err != nil {
		t.Fatal(err)
	}
	out, err := l.Entries(EventService, EntryQuery{Limit: 9})
	if err != nil || len(out.Entries) != 1 || out.Entries[0].Message != "StartVM" || !out.Complete {
		t.Errorf("events: %+v, %v", out, err)
	}
}

// TestScanBackwards: the lines are those of the text in reverse, whatever the blocks cut.
func TestScanBackwards(t *testing.T) {
	for _, text := range []string{
		"", "a", "a\n", "a\nb", "\n\na\n\n",
		strings.Repeat(strings.Repeat("x", 1000)+"\n", 300),
		strings.Repeat("y", scanBlock) + "\n" + strings.Repeat("z", scanBlock-1) + "\nend",
	} {
		var got []string
		begin, err := scanBackwards(strings.NewReader(text), int64(len(text)), 1<<40, func(line []byte) bool {
			got = append(got, string(line))
			return true
		})
		slices.Reverse(got)
		want := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if text == "" {
			want = nil
		}
		if err != nil || begin != 0 || !slices.Equal(got, want) {
			t.Errorf("%d bytes: %d lines from %d, want %d: %v", len(text), len(got), begin, len(want), err)
		}
	}
}

// TestScanBudget: a scan reads no more than it may, and continues where it stopped.
func TestScanBudget(t *testing.T) {
	text := strings.Repeat(strings.Repeat("x", 99)+"\n", 5000)
	lines, scans := 0, 0
	for end := int64(len(text)); end > 0; scans++ {
		begin, err := scanBackwards(strings.NewReader(text), end, 100_000, func(line []byte) bool {
			if !bytes.Equal(line, []byte(strings.Repeat("x", 99))) {
				t.Fatalf("line %q", line)
			}
			lines++
			return true
		})
		if err != nil || begin >= end {
			t.Fatalf("from %d to %d: %v", end, begin, err)
		}
		end = begin
	}
	if lines != 5000 || scans < 5 {
		t.Errorf("%d lines in %d scans", lines, scans)
	}
}
