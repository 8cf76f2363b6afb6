package vulndb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// memory is a file in memory that the writer can seek in.
type memory struct {
	b  []byte
	at int64
}

func (m *memory) Write(p []byte) (int, error) {
	m.b = append(m.b[:min(m.at, int64(len(m.b)))],
		append(slices.Clone(p), m.b[min(m.at+int64(len(p)), int64(len(m.b))):]...)...)
	m.at += int64(len(p))
	return len(p), nil
}

func (m *memory) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart {
		return 0, errors.New("only from the start")
	}
	m.at = offset
	return offset, nil
}

// content is what a test puts into a database.
type content struct {
	vulnerabilities []Vulnerability
	applicabilities []keyed
	advisories      []Advisory
}

type keyed struct {
	key ApplicabilityKey
	a   Applicability
}

func write(t testing.TB, c content) []byte {
	t.Helper()
	var m memory
	w, err := NewWriter(&m, time.Unix(1_700_000_000, 0))
	check(t, err)
	for _, v := range c.vulnerabilities {
		check(t, w.Vulnerability(v))
	}
	for _, k := range c.applicabilities {
		check(t, w.Applicability(k.key, k.a))
	}
	for _, a := range c.advisories {
		check(t, w.Advisory(a))
	}
	check(t, w.Close([]SourceInfo{{Name: "one", Records: 3}}))
	return m.b
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, b []byte) *DB {
	t.Helper()
	db, err := NewDB(bytes.NewReader(b), int64(len(b)))
	check(t, err)
	return db
}

func some() content {
	score := Score{
		Base: 9.8, Severity: Critical, Version: "3.1",
		Vector: "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", Source: NVD,
	}
	return content{
		vulnerabilities: []Vulnerability{
			{
				ID: "CVE-2020-0001", URL: cveURL("CVE-2020-0001"), Score: score, Related: []string{
					"GHSA-1", "GO-1",
				}, Exploited: true, ExploitedSince: time.Unix(1_600_000_000, 0).UTC(), EPSS: 0.123456789,
				EPSSPercentile: 0.5,
			},
			{ID: "CVE-2020-0002", URL: cveURL("CVE-2020-0002"), Score: Score{Severity: Unknown}, Rejected: true},
			{ID: "RUSTSEC-2021-0001", URL: "https://example.org/1", Score: Score{Severity: High, Source: GHSA}},
		},
		applicabilities: []keyed{
			{ApplicabilityKey{"Apple", "mac_os", 0}, Applicability{ID: "CVE-2020-0001", Source: NVD, Nodes: []Node{
				{
					Criteria: []Criterion{
						{
							CPE: "cpe:2.3:a:apple:mac_os:*:*:*:*:*:*:*:*", Vulnerable: true, StartIncluding: "1.0",
							EndExcluding: "2.0",
						},
						{
							CPE: `cpe:2.3:a:apple:mac\+os:1.2:*:*:*:*:node.js:*:*`, Vulnerable: true,
							StartExcluding: "1",
							EndIncluding:   "3",
						},
					},
				},
				{Negate: true, All: true, Criteria: []Criterion{
					{CPE: "cpe:2.3:o:linux:kernel:-:*:*:*:*:*:x64:*"}, {CPE: ""},
				}},
			}}},
			{ApplicabilityKey{"apple", "mac_os", 1}, Applicability{ID: "CVE-2020-0001", Source: CNA}},
			{ApplicabilityKey{"b", "c", 0}, Applicability{ID: "CVE-1999-0002"}},
		},
		advisories: []Advisory{
			{ID: "GO-1", Source: GoVuln, CVEs: []string{"CVE-2020-0001"}, Related: []string{
				"GHSA-1",
			}, Ecosystem: Go, Name: "example.org/mod", Unconfirmed: true, Ranges: []Range{
				{Introduced: "1.0.0", Fixed: "1.2.3"}, {IntroducedOpen: true, Introduced: "2", LastAffected: "3"}, {},
			}},
			{
				ID: "PYSEC-1", Source: PyPA, Ecosystem: PyPI, Name: "My.Package", URL: "https://example.org",
				Versions: []string{"1.0", "1.0.1", "1.1", "2"},
			},
		},
	}
}

func all[T any](t testing.TB, seq func(func(T, error) bool)) []T {
	t.Helper()
	list, err := collectAll(seq)
	check(t, err)
	return list
}

func TestRecordsComeBackAsTheyWent(t *testing.T) {
	c := some()
	db := open(t, write(t, c))
	for _, want := range c.vulnerabilities {
		got, _, err := db.Vulnerability(want.ID)
		check(t, err)
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	if d := cmp.Diff(c.advisories, all(t, db.AllAdvisories())); d != "" {
		t.Error(d)
	}
	var want []Applicability
	for _, k := range c.applicabilities {
		want = append(want, k.a)
	}
	if d := cmp.Diff(want, all(t, db.scanApplicabilities(nil))); d != "" {
		t.Error(d)
	}
	check(t, db.Verify(context.Background()))
	info := db.Info()
	if info.Advisories != 2 || info.Applicabilities != 3 || info.Vulnerabilities != 3 ||
		info.Built.Unix() != 1_700_000_000 {
		t.Errorf("info is %+v", info)
	}
}

func TestLookUps(t *testing.T) {
	db := open(t, write(t, some()))
	if list, err := db.Advisories(PyPI, "my_package"); err != nil || len(list) != 1 || list[0].ID != "PYSEC-1" {
		t.Errorf("advisories of my_package: %v, %v", list, err)
	}
	if list, err := db.Advisories(Go, "example.org"); err != nil || len(list) != 0 {
		t.Errorf("advisories of a part of a name: %v, %v", list, err)
	}
	if list := all(t, db.EachApplicability("apple", `Mac_OS`)); len(list) != 2 {
		t.Errorf("applicabilities: %v", list)
	}
	if v, ok, err := db.Vulnerability("CVE-2020-0002"); err != nil || !ok || !v.Rejected {
		t.Errorf("vulnerability: %v, %v, %v", v, ok, err)
	}
	for _, id := range []string{"", "CVE-2020-00", "CVE-2020-00011", "ZZZ", "\xff"} {
		if v, ok, err := db.Vulnerability(id); err != nil || ok {
			t.Errorf("vulnerability %q: %v, %v", id, v, err)
		}
	}
}

// TestManyRecords has trees of three levels, with records of all sizes.
func TestManyRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var c content
	want := map[string]int{}
	for range 25_000 {
		name := fmt.Sprintf("%s-%d", strings.Repeat("x", rng.IntN(400)), rng.IntN(8_000))
		a := Advisory{ID: fmt.Sprintf("GHSA-%d", len(c.advisories)), Source: GHSA, Ecosystem: NPM, Name: name}
		if rng.IntN(1000) == 0 {
			for i := range rng.IntN(20_000) {
				a.Versions = append(a.Versions, fmt.Sprintf("1.%d", i))
			}
		}
		c.advisories = append(c.advisories, a)
		want[name]++
	}
	slices.SortFunc(c.advisories, func(a, b Advisory) int { return bytes.Compare(AdvisoryKey(a), AdvisoryKey(b)) })
	b := write(t, c)
	db := open(t, b)
	check(t, db.Verify(context.Background()))
	root, err := db.trees[advisorySection].readBlock(db.trees[advisorySection].root)
	check(t, err)
	if root.level < 2 {
		t.Errorf("the tree has only %d levels below its root", root.level)
	}
	for i := range 5_000 {
		name := fmt.Sprintf("%s-%d", strings.Repeat("x", i%60), i)
		list, err := db.Advisories(NPM, name)
		if err != nil || len(list) != want[name] {
			t.Fatalf("%s: %d advisories, want %d: %v", name, len(list), want[name], err)
		}
	}
	if again := write(t, c); !bytes.Equal(b, again) {
		t.Error("the same records gave other bytes")
	}
}

func TestFilesThatAreNoGood(t *testing.T) {
	good := write(t, some())
	change := func(at int, with ...byte) []byte {
		b := slices.Clone(good)
		copy(b[at:], with)
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		want error
		text string
	}{
		"empty":     {nil, ErrNotDatabase, "not a vulnerability database"},
		"foreign":   {[]byte("PK\x03\x04 a zip file"), ErrNotDatabase, "not a vulnerability database"},
		"short":     {good[:30], ErrDamaged, "truncated after 30 bytes"},
		"cut off":   {good[:len(good)-1], ErrDamaged, "instead of"},
		"newer":     {change(8, Schema+1), ErrNewerSchema, fmt.Sprintf("schema %d", Schema+1)},
		"older":     {change(8, 0), ErrDamaged, "schema 0"},
		"header":    {change(16, 9), ErrDamaged, "header"},
		"directory": {change(len(good)-3, 'x'), ErrDamaged, "directory"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			check(t, os.WriteFile(path, c.b, 0o600))
			_, err := Open(path)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNotDatabase) {
		t.Errorf("a directory: %v", err)
	}
}

// TestEveryFlippedBitIsFound changes each byte of a file in turn: it is never read as
// another database.
func TestEveryFlippedBitIsFound(t *testing.T) {
	good := write(t, some())
	for i := range good {
		b := slices.Clone(good)
		b[i] ^= 1 << (i % 8)
		db, err := NewDB(bytes.NewReader(b), int64(len(b)))
		if err == nil {
			err = db.Verify(context.Background())
		}
		if err == nil {
			t.Errorf("byte %d of %d was changed and nobody saw it", i, len(good))
		}
	}
}

func TestWriterKeepsOrder(t *testing.T) {
	w, err := NewWriter(&memory{}, time.Now())
	check(t, err)
	check(t, w.Vulnerability(Vulnerability{ID: "B"}))
	if err := w.Vulnerability(Vulnerability{ID: "A"}); !errors.Is(err, errNotSorted) {
		t.Errorf("A after B: %v", err)
	}
	check(t, w.Advisory(Advisory{ID: "A"}))
	if err := w.Vulnerability(Vulnerability{ID: "C"}); !errors.Is(err, errNotSorted) {
		t.Errorf("back to a former section: %v", err)
	}
	if err := w.Advisory(Advisory{ID: "B", Name: "a\x00b"}); !errors.Is(err, ErrRecordLimit) {
		t.Errorf("a zero byte: %v", err)
	}
	if err := w.Advisory(Advisory{ID: strings.Repeat("x", 5000)}); !errors.Is(err, ErrRecordLimit) {
		t.Errorf("a long id: %v", err)
	}
}

func TestKey(t *testing.T) {
	for _, c := range []struct {
		eco        Ecosystem
		name, want string
	}{
		{PyPI, "Zope.Interface", "zope-interface"},
		{PyPI, "a-_.b", "a-b"},
		{Crates, "Serde_JSON", "serde-json"},
		{Homebrew, "OpenSSL@3", "openssl@3"},
		{NPM, "JSONStream", "JSONStream"},
		{Maven, "org.yaml : snakeyaml", "org.yaml:snakeyaml"},
		{RubyGems, "RedCloth", "RedCloth"},
	} {
		if got := PackageKey(c.eco, c.name); got != c.want {
			t.Errorf("%s %q is kept as %q, want %q", c.eco, c.name, got, c.want)
		}
	}
	if got := ProductKey(`Notepad\+\+`); got != "notepad++" {
		t.Errorf("product is kept as %q", got)
	}
}

// TestAnswersAreBounded has few bytes that expand to a lot.
func TestAnswersAreBounded(t *testing.T) {
	long := strings.Repeat("x", 30_000)
	var c content
	for i := range 4 {
		a := Advisory{ID: fmt.Sprintf("A-%d", i), Ecosystem: NPM, Name: "x"}
		for range 1000 {
			a.Versions = append(a.Versions, long)
		}
		c.advisories = append(c.advisories, a)
	}
	b := write(t, c)
	if len(b) > 200_000 {
		t.Fatalf("the file has %d bytes", len(b))
	}
	db := open(t, b)
	if _, err := db.Advisories(NPM, "x"); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "48 MiB") {
		t.Errorf("got %v", err)
	}
	if n := len(all(t, db.AllAdvisories())); n != 4 {
		t.Errorf("one by one there are %d", n)
	}
}
