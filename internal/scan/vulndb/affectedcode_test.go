package vulndb

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func someCode() []AdvisoryCode {
	return []AdvisoryCode{
		{ID: "GO-2020-0001", Module: "example.org/mod", Code: []AffectedCode{{Packages: []CodePackage{
			{Path: "example.org/mod/a", Symbols: []string{"Decoder.Decode", "Decoder.More", "Parse"}},
			{Path: "example.org/mod/b", GOOS: []string{"windows"}, GOARCH: []string{"386", "amd64"}},
		}}}},
		{ID: "GO-2020-0001", Module: "stdlib", Code: []AffectedCode{
			{Ranges: []Range{{Fixed: "1.20.11"}, {Introduced: "1.21.0-0", Fixed: "1.21.4"}}, Packages: []CodePackage{
				{Path: "path/filepath", Symbols: []string{"Clean", "join"}},
			}},
			{Ranges: []Range{{Introduced: "1.20.11", Fixed: "1.20.12"}}},
		}},
	}
}

func writeCode(t *testing.T, list []AdvisoryCode) []byte {
	t.Helper()
	var m memory
	w, err := NewWriter(&m, time.Unix(1_700_000_000, 0))
	check(t, err)
	for _, c := range list {
		check(t, w.Code(c))
	}
	check(t, w.Description(Description{ID: "CVE-2020-0001", Text: "A text."}))
	check(t, w.Close(nil))
	return m.b
}

func TestCodeComesBack(t *testing.T) {
	db := open(t, writeCode(t, someCode()))
	check(t, db.Verify(t.Context()))
	for _, want := range someCode() {
		got, err := db.AffectedCode(want.ID, want.Module)
		if diff := cmp.Diff(want.Code, got); diff != "" || err != nil {
			t.Errorf("%v: %s", err, diff)
		}
		var copied AdvisoryCode
		b, err := want.AppendBinary(nil)
		check(t, err)
		check(t, copied.UnmarshalBinary(b))
		if diff := cmp.Diff(want, copied); diff != "" {
			t.Error(diff)
		}
	}
	for _, key := range [][2]string{{"GO-2020-0001", "example.org/mod/a"}, {"GO-2020-000", "example.org/mod"}} {
		if got, err := db.AffectedCode(key[0], key[1]); got != nil || err != nil {
			t.Errorf("of %s: %v, %v", key, got, err)
		}
	}
}

// TestNoCode: a database of an earlier program has none.
func TestNoCode(t *testing.T) {
	raw := write(t, some())
	db := open(t, raw)
	db.trees[codeSection] = &tree{r: bytes.NewReader(raw), cache: newBlockCache()}
	if got, err := db.AffectedCode("GO-2020-0001", "stdlib"); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCodeWithZeroByte(t *testing.T) {
	w, err := NewWriter(&memory{}, time.Unix(1_700_000_000, 0))
	check(t, err)
	if err := w.Code(AdvisoryCode{ID: "GO-1\x00", Module: "m"}); !errors.Is(err, ErrRecordLimit) {
		t.Error(err)
	}
}

func TestCodeProblem(t *testing.T) {
	of := func(p ...CodePackage) AdvisoryCode { return AdvisoryCode{Code: []AffectedCode{{Packages: p}}} }
	for want, c := range map[string]AdvisoryCode{
		"":                                 someCode()[0],
		"a name has 0 bytes":               of(CodePackage{Path: ""}),
		"a name has 1001 bytes":            of(CodePackage{Path: "a", Symbols: []string{strings.Repeat("x", 1001)}}),
		"it has 1001 packages and 0 symb":  of(codePackages(1001)...),
		"it has 1 packages and 20001 symb": of(CodePackage{Path: "a", Symbols: slices.Repeat([]string{"x"}, 20001)}),
	} {
		if got := c.Problem(); got != want && (want == "" || !strings.HasPrefix(got, want)) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func codePackages(n int) []CodePackage {
	out := make([]CodePackage, n)
	for i := range out {
		out[i].Path = "a"
	}
	return out
}

func TestAppliesTo(t *testing.T) {
	p := CodePackage{GOOS: []string{"windows"}, GOARCH: []string{"386", "amd64"}}
	for _, tc := range []struct {
		goos, goarch string
		want         bool
	}{
		{"windows", "amd64", true},
		{"windows", "arm64", false},
		{"linux", "amd64", false},
		{"", "", true},
		{"windows", "", true},
	} {
		if got := p.AppliesTo(tc.goos, tc.goarch); got != tc.want {
			t.Errorf("%s/%s: %t", tc.goos, tc.goarch, got)
		}
	}
	if !(CodePackage{}).AppliesTo("plan9", "mips") {
		t.Error("a package of all platforms is not of one")
	}
}
