package search

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func record(id, name, template, note string) []Field {
	return []Field{
		{Name: "id", Text: id, IsID: true},
		{Name: "name", Text: name, IsID: true},
		{Name: "template", Text: template},
		{Name: "metadata", Key: "note", Text: note},
	}
}

func TestMatch(t *testing.T) {
	fields := record("0199-ab", "ios-build 7", "Sonoma:v1", "from Branch release/9")
	for text, want := range map[string]struct {
		rank  Rank
		field int
	}{
		"0199-AB": {Exact, 0}, "IOS-build  7": {Exact, 1}, "ios": {Prefix, 1}, "01": {Prefix, 0}, "ab": {Word, 0},
		"build": {Word, 1}, "os-b": {Substring, 1}, "sonoma:v1": {Word, 2}, "sono": {Word, 2}, "v1": {Word, 2},
		"onoma": {Substring, 2}, "9": {Word, 3}, "branch release": {Word, 3}, "ranch": {Substring, 3},
		"ios sonoma": {Word, 1}, "sonoma ios": {Word, 2}, "ios onoma": {Substring, 1}, "99": {Substring, 0},
		" 7 ": {Word, 1},
	} {
		q, ok := ParseQuery(text)
		if !ok {
			t.Errorf("%q is blank", text)
			continue
		}
		if m, ok := q.Match(fields); !ok || m.Rank != want.rank || m.Field != want.field {
			t.Errorf("%q: %s in field %d (%t), want %s in %d", text, m.Rank, m.Field, ok, want.rank, want.field)
		}
	}
	for _, text := range []string{"x", "ios-build 8", "ios nothing", "0199-abc"} {
		q, _ := ParseQuery(text)
		if m, ok := q.Match(fields); ok {
			t.Errorf("%q matches: %v", text, m)
		}
	}
	for _, text := range []string{"", " \t\n "} {
		if _, ok := ParseQuery(text); ok {
			t.Errorf("%q is not blank", text)
		}
	}
}

// TestBounds: neither a long query nor a long field costs more than its bound.
func TestBounds(t *testing.T) {
	q, ok := ParseQuery(strings.Repeat("a ", 10*MaxQueryBytes))
	if !ok || len(q.phrase) > MaxQueryBytes || len(q.words) != maxWords {
		t.Errorf("%d bytes, %d words", len(q.phrase), len(q.words))
	}
	q, _ = ParseQuery("end")
	if _, ok := q.Match(record("", "", "", strings.Repeat("x", maxFieldBytes)+"end")); ok {
		t.Error("the end of a long text is searched")
	}
}

// TestBest: the best of many are those of the whole, sorted list.
func TestBest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []Ranked[int]
	for i := range 500 {
		all = append(all, Ranked[int]{i, Rank(random.IntN(int(none)))})
	}
	sorted := slices.SortedStableFunc(slices.Values(all), func(a, b Ranked[int]) int {
		return cmp.Or(int(a.Rank-b.Rank), cmp.Compare(a.Record, b.Record))
	})
	for _, limit := range []int{1, 8, 50, 499, 500, 600} {
		best, rest := NewBest(limit, cmp.Compare[int]), NewBest(limit, cmp.Compare[int])
		for i, one := range all {
			if i%3 == 0 {
				rest.Add(one.Record, one.Rank)
			} else {
				best.Add(one.Record, one.Rank)
			}
		}
		best.Merge(rest)
		if best.Total() != len(all) || !slices.Equal(best.Ranked(), sorted[:min(limit, len(all))]) {
			t.Errorf("limit %d: %d of %d are not the best", limit, len(best.Ranked()), best.Total())
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("ios build", "ios-build")
	f.Add("\xff", "a\xffb")
	f.Add("İ", "i̇")
	f.Fuzz(func(t *testing.T, query, text string) {
		q, ok := ParseQuery(query)
		if !ok {
			return
		}
		fields := []Field{{Name: "name", Text: text, IsID: true}, {Name: "tag", Text: query}}
		fields = append(fields, Field{Name: "note", Text: text + " " + query})
		if got, want := firstBest(fields, q.phrase), slowBest(fields, q.phrase); got != want {
			t.Fatalf("%q in %q: %v, want %v", query, text, got, want)
		}
		m, ok := q.Match(fields[:1])
		if ok && (m.Rank < Exact || m.Rank >= none || m.Field != 0) {
			t.Fatalf("match %v", m)
		}
		if self, ok := q.Match([]Field{{Name: "name", Text: q.phrase, IsID: true}}); !ok || self.Rank != Exact {
			t.Fatalf("%q does not match itself: %v", q.phrase, self)
		}
	})
}

// firstBest returns the field in which a word matches best.
func firstBest(fields []Field, word string) Match {
	text := Text(fields)
	rank, at := bestMatch(text, word)
	if rank == none {
		return Match{Rank: none}
	}
	return Match{rank, fieldAt(text, at)}
}

// slowBest is firstBest without its shortcuts.
func slowBest(fields []Field, word string) Match {
	best := Match{Rank: none}
	for i, field := range fields {
		text := fold(field.Text[:min(len(field.Text), maxFieldBytes)])
		for at := range len(text) {
			if !strings.HasPrefix(text[at:], word) {
				continue
			}
			rank := Substring
			switch {
			case text == word && field.IsID:
				rank = Exact
			case at == 0 && field.IsID:
				rank = Prefix
			case at == 0 || !isWordByte(text[at-1]):
				rank = Word
			}
			if rank < best.Rank {
				best = Match{Rank: rank, Field: i}
			}
		}
	}
	return best
}

func BenchmarkMatch(b *testing.B) {
	var all []string
	for i := range 20000 {
		all = append(all, Text(record(fmt.Sprintf("0199a2f4-%04x-7000-8000-%012x", i, i), fmt.Sprintf("job-%d", i),
			"sonoma-xcode", "release/"+fmt.Sprint(i%50))))
	}
	q, _ := ParseQuery("release/49")
	b.ReportAllocs()
	for b.Loop() {
		best := NewBest(8, func(_, _ int) int { return 0 })
		for i, text := range all {
			if rank, ok := q.Rank(text); ok {
				best.Add(i, rank)
			}
		}
		if best.Total() != 400 {
			b.Fatal(best.Total())
		}
	}
}
