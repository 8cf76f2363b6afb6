package score

import (
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		vector   string
		base     float64
		severity vulndb.Severity
		version  string
	}{
		{"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", 10, vulndb.Critical, "3.1"},
		{"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H/E:U", 9.8, vulndb.Critical, "3.1"},
		{"CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H", 7.5, vulndb.High, "3.0"},
		{"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N", 0, vulndb.Unknown, "3.1"},
		{"CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", 9.3, vulndb.Critical, "4.0"},
		{"CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N/E:U", 9.3, vulndb.Critical, "4.0"},
		{"(AV:N/AC:L/Au:N/C:C/I:C/A:C)", 10, vulndb.High, "2.0"},
		{" AV:N/AC:M/Au:N/C:N/I:P/A:N ", 4.3, vulndb.Medium, "2.0"},
	} {
		s, err := Parse(c.vector, vulndb.NVD)
		if err != nil || s.Base != c.base || s.Severity != c.severity || s.Version != c.version ||
			s.Source != vulndb.NVD {
			t.Errorf("%s: %+v, %v", c.vector, s, err)
		}
	}
	for _, bad := range []string{
		"", "CVSS:3.1/", "CVSS:3.1/AV:N", "CVSS:9.9/AV:N", "7.5", "AV:Q/AC:L/Au:N/C:P/I:P/A:P",
		string(make([]byte, 9999)),
	} {
		if s, err := Parse(bad, vulndb.NVD); err == nil {
			t.Errorf("%.20q: %+v", bad, s)
		}
	}
}

// TestPrecedence has the scores in the order of their precedence.
func TestPrecedence(t *testing.T) {
	order := []vulndb.Score{
		{Source: vulndb.NVD, Version: "3.1", Base: 5},
		{Source: vulndb.NVD, Version: "3.0", Base: 5},
		{Source: vulndb.CNA, Version: "3.0", Base: 5},
		{Source: vulndb.ADP, Version: "3.1", Base: 9},
		{Source: vulndb.GHSA, Version: "3.1", Base: 5},
		{Source: vulndb.RustSec, Version: "3.1", Base: 9},
		{Source: vulndb.NVD, Version: "4.0", Base: 5},
		{Source: vulndb.GHSA, Version: "4.0", Base: 9},
		{Source: vulndb.NVD, Version: "2.0", Base: 5},
		{Source: vulndb.RubySec, Version: "2.0", Base: 9},
		{Source: vulndb.OSV, Base: 9},
		{Source: vulndb.GHSA, Severity: vulndb.High},
		{Severity: vulndb.Unknown},
	}
	for i, a := range order {
		for j, b := range order {
			if got := Better(a, b); got != (i < j) {
				t.Errorf("%+v before %+v: %t", a, b, got)
			}
		}
	}
	shuffled := slices.Clone(order)
	slices.Reverse(shuffled)
	slices.SortFunc(shuffled, func(a, b vulndb.Score) int {
		if Better(a, b) {
			return -1
		}
		return 1
	})
	if !slices.Equal(shuffled, order) {
		t.Error("the order depends on where it begins")
	}
}

func TestWordsAndNumbers(t *testing.T) {
	for word, want := range map[string]vulndb.Severity{
		"MODERATE": vulndb.Medium, "Low": vulndb.Low, "": vulndb.Unknown,
		"none": vulndb.Unknown, "CRITICAL": vulndb.Critical,
	} {
		if got := FromWord(word, vulndb.GHSA); got.Severity != want || got.Base != 0 {
			t.Errorf("%q: %+v", word, got)
		}
	}
	if _, err := FromNumber(10.1, "3.1", vulndb.NVD); err == nil {
		t.Error("10.1 is taken")
	}
	if s, err := FromNumber(9, "3.1", vulndb.NVD); err != nil || s.Severity != vulndb.Critical {
		t.Errorf("9: %+v, %v", s, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H")
	f.Add("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N")
	f.Add("AV:N/AC:M/Au:N/C:N/I:P/A:N")
	f.Fuzz(func(t *testing.T, v string) {
		if s, err := Parse(v, vulndb.NVD); err == nil && (s.Base < 0 || s.Base > 10) {
			t.Errorf("%q: %+v", v, s)
		}
	})
}
