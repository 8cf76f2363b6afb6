package vercmp_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/match/vercmp"
)

var schemes = []vercmp.Scheme{
	vercmp.SemVer, vercmp.GoTool, vercmp.PEP440, vercmp.RubyGems, vercmp.Maven, vercmp.Homebrew, vercmp.NVD,
	vercmp.Deb, vercmp.RPM, vercmp.APK,
}

func sign(n int) int { return cmp.Compare(n, 0) }

// strange are pairs that the library orders differently from Maven: words after words that no rule
// covers.
var strange = map[string]bool{
	"1.0.x": true, "1.0.foo": true, "1.0-foo": true, "1.0.0.fuse-7": true, "1.0-dev": true, "1.0_01": true,
}

// Comparisons agree with those of the tools of an ecosystem.
func TestAsTheToolsDo(t *testing.T) {
	files := map[string]vercmp.Scheme{
		"maven.tsv": vercmp.Maven, "rubygems.tsv": vercmp.RubyGems, "pep440.tsv": vercmp.PEP440,
		"semver.tsv": vercmp.SemVer, "dpkg.tsv": vercmp.Deb, "rpm.tsv": vercmp.RPM,
	}
	for name, s := range files {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Split(strings.TrimSpace(line), "\t")
			a, errA := vercmp.Parse(s, f[0])
			b, errB := vercmp.Parse(s, f[1])
			if refused := errA != nil || errB != nil; refused || f[2] == "none" {
				if refused != (f[2] == "none") {
					t.Errorf("%s: %s and %s: %v, %v, want %s", name, f[0], f[1], errA, errB, f[2])
				}
				continue
			}
			got, back := sign(a.Compare(b)), sign(b.Compare(a))
			if strconv.Itoa(got) != f[2] && !strange[f[0]] && !strange[f[1]] {
				t.Errorf("%s: %s and %s compare as %d, want %s", name, f[0], f[1], got, f[2])
			}
			if back != -got {
				t.Errorf("%s: %s and %s compare as %d, and back as %d", name, f[0], f[1], got, back)
			}
		}
	}
}

// chains are ascending versions; those within one string are equal.
var chains = map[vercmp.Scheme][]string{
	vercmp.SemVer: {
		"0.0.0-20210101000000-0123456789ab", "0.0.0-20220101000000-0123456789ab", "0 0.0.0 v0", "1.0.0-alpha",
		"1.0.0-alpha.1", "1.0.0-alpha.beta",
		"1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.9", "1.0.0-rc.10", "1 v1.0.0 1.0.0+build =1.0 1.00.0",
		"v1.0.1-0.20240101000000-0123456789ab",
		"1.0.1", "v2.0.0+incompatible 2.0.0", "2024.1.2", "2024.10.2", "99999999999999999999.0.0",
	},
	vercmp.GoTool: {
		"1.20.0-0", "go1.20rc1 1.20.0-rc.1", "go1.20rc10", "go1.20 1.20 1.20.0", "go1.20.9",
		"go1.20.10 go1.20.10 X:boringcrypto", "1.21.0-0",
		"go1.21beta1", "go1.21rc2 1.21.0-rc.2", "1.21.0",
	},
	vercmp.PEP440: {
		"1.0.dev1", "1.0a1.dev1", "1.0a1 1.0-alpha.1", "1.0b2", "1.0rc1 1.0c1 1.0.pre1", "1 1.0 1.0.0 v1.0",
		"1.0+cu118", "1.0.post1 1.0-1 1.0rev1",
		"1.1.dev3", "1.1", "2019.3 2019.03", "1!0.1",
	},
	vercmp.RubyGems: {
		"1.0.a", "1.0.a.2 1.0.a2", "1.0.b1", "1.0.0.pre1", "1.0.0.rc1 1.0.0.rc1-x86_64-linux", "1 1.0 1.0.0",
		"1.0.0.1 1.0.0.1-java",
		"1.13.9 1.13.9-x86_64-darwin 1.13.9-arm64-darwin-22", "1.13.10",
	},
	vercmp.Maven: {
		"1.0-alpha-1 1.0-a1 1.0.Alpha1", "1.0-beta-1", "1.0-M1 1.0.M1", "1.0-rc1 1.0.CR1 1.0.RC1", "1.0-SNAPSHOT",
		"1 1.0 1.0.Final 1.0-GA 1.0.RELEASE",
		"1.0-sp1", "1.0-jre", "1.0.1", "1.9", "1.10", "2.13.2", "2.13.2.1", "9.4.40.v20210413", "9.4.41.v20210516",
	},
	vercmp.Homebrew: {
		"r913", "r3095", "r3108 r3108_0", "1.0-alpha1", "1.0-beta.2 1.0b2", "1.0rc1", "1.0 1.0.0 1.0_0", "1.0_1",
		"1.0_9", "1.0_10", "1.0p1", "1.0.1", "1.1.1", "1.1.1a", "1.1.1w", "1.1.1w_1", "1.1.2",
		"7.1.1-9", "7.1.1-15", "2024-01-02", "2024-01-02_1",
	},
	vercmp.NVD: {
		"1.0-dev", "1.0alpha2", "1.0-beta-2 1.0b2", "1.0-rc1 1.0rc1 1.0.RC.1", "1.0 v1.0 1.0.0", "1.0p1 1.0-patch1",
		"1.0p2", "1.0a", "1.0.1", "9.3p1", "116.0.5845.96", "116.0.5845.110",
	},
	vercmp.Deb: {
		"0~", "0 0:0 00 0-0", "1.0~~", "1.0~~a", "1.0~", "1.0~rc1-1", "1.0 1.0-0", "1.0-1~deb12u1", "1.0-1",
		"1.0-1ubuntu0.22.04.1",
		"1.0-1+b1", "1.0-1+deb12u1", "1.0a-1", "1.0+dfsg-1", "1.0.1", "1.10", "1:0.1",
	},
	vercmp.RPM: {
		"1~", "1 0:1", "1-1", "1^", "1^20160101-1", "1a-1", "1.0~rc1-1.el9", "1.0-1.el9 1.00-1.el9 1_0-1.el9",
		"1.0-1.el9_4", "1.0-1.el10", "1.0^git1-1", "1.0.1-1", "1.1.1k-12.el8_9 0:1.1.1k-12.el8_9", "1:0.1-1",
	},
	// The examples of apk-package(5), with each pair of neighbors by its rules.
	vercmp.APK: {
		"0.1_alpha", "0.1_alpha1", "0.1_alpha10", "0.1_beta", "0.1_pre2", "0.1_rc1", "0.1_rc2_alpha",
		"0.1_rc2", "0.1", "0.1-r0 0.1-r00", "0.1-r1", "0.1~1234abcd", "0.1~1234abcd-r1", "0.1_cvs", "0.1_svn3",
		"0.1_git20240101", "0.1_hg", "0.1_p", "0.1_p1-r3", "0.1a", "0.1b-r1", "0.1.0", "0.1.09", "0.1.1", "0.1.9",
		"0.1.10",
		"1 01", "3.1.4-r5", "3.1.4-r10",
	},
}

func TestChains(t *testing.T) {
	for s, chain := range chains {
		for i, left := range chain {
			for j, right := range chain {
				for _, a := range spellings(s, left) {
					for _, b := range spellings(s, right) {
						if got := sign(parse(t, s, a).Compare(parse(t, s, b))); got != sign(i-j) {
							t.Errorf("%s: %s and %s compare as %d", s, a, b, got)
						}
					}
				}
			}
		}
	}
}

// spellings splits a link of a chain. Go's own versions may have a space within.
func spellings(s vercmp.Scheme, link string) []string {
	if s == vercmp.GoTool && strings.Contains(link, "X:") {
		return []string{link}
	}
	return strings.Fields(link)
}

func parse(t *testing.T, s vercmp.Scheme, text string) vercmp.Version {
	t.Helper()
	v, err := vercmp.Parse(s, text)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	if v.String() != text {
		t.Fatalf("%q became %q", text, v)
	}
	return v
}

func TestNoVersions(t *testing.T) {
	none := map[vercmp.Scheme][]string{
		vercmp.SemVer: {
			"latest", "(devel)", "1.2.3.4", "1..2", "1.2.3-", "1.2.3-a..b", "file:../x", "*", "^1.0",
			"1.2.x", "1.0_1",
		},
		vercmp.GoTool:   {"devel go1.24-abc", "go", "go1.24-devel_abc"},
		vercmp.PEP440:   {"latest", "1.0-foo", "1.0.x", "dev", "==1.0", "1.0 2.0"},
		vercmp.RubyGems: {"latest", "1..2", ".1", "200MB", "1.0_1", ">= 1"},
		vercmp.Maven:    {"${project.version}", "[1.0,2.0)", " ", "@VERSION@"},
		vercmp.Homebrew: {"---", "_", "HEAD", "HEAD-1a2b3c4", "HEAD-1a2b3c4_1", "latest", ".1"},
		vercmp.Deb:      {"1.0-", ":1", "a:1.0", "1.0_1", "1.0 2", "-1", "99999999999:1", "${source:Version}"},
		vercmp.RPM:      {"1.0-", "-1", "a:1", "1:2:3", "1-2-3", "1 2", "%{version}"},
		vercmp.APK: {
			"latest", "1.", "1.a", "1ab", "1_foo", "1-1", "1-r", "1~", "1~xyz", "1-r1-r2", "1-r1_p1",
			"1:1",
		},
		vercmp.NVD: {"unspecified", "n/a", "*", "7a3e91c2d", "0123456789abcdef0123456789abcdef01234567"},
	}
	for _, s := range schemes {
		for _, text := range append(none[s], "", "\x00", "1\x00", "1\n2", strings.Repeat("9", 1<<20),
			strings.Repeat("1.", 1<<19)) {
			if v, err := vercmp.Parse(s, text); !errors.Is(err, vercmp.ErrInvalidVersion) {
				t.Errorf("%s takes %.20q as %.20q: %v", s, text, v, err)
			} else if len(err.Error()) > 3*vercmp.MaxVersionBytes {
				t.Errorf("%s: the error has %d bytes", s, len(err.Error()))
			}
		}
	}
	if _, err := vercmp.Parse("none", "1"); !errors.Is(err, vercmp.ErrInvalidVersion) {
		t.Errorf("got %v", err)
	}
}

// FuzzCompare looks for versions without a consistent order: unequal to themselves, asymmetric, or
// cyclic among three.
func FuzzCompare(f *testing.F) {
	for i, s := range schemes {
		for n := range chains[s] {
			link := spellings(s, chains[s][n])
			next := spellings(s, chains[s][(n+1)%len(chains[s])])
			f.Add(uint8(i), link[0], next[0], link[len(link)-1])
		}
	}
	f.Add(uint8(8), "1^~", "1~^", "1.a")
	f.Add(uint8(9), "1.01_rc", "1.1_p", "1.010a")
	f.Add(uint8(2), "1.0-foo", strings.Repeat("1.", 127), "1"+strings.Repeat("0", 255))
	f.Fuzz(func(t *testing.T, scheme uint8, x, y, z string) {
		s := schemes[int(scheme)%len(schemes)]
		a, errA := vercmp.Parse(s, x)
		b, errB := vercmp.Parse(s, y)
		c, errC := vercmp.Parse(s, z)
		if errA != nil || errB != nil || errC != nil {
			return
		}
		ab, ba, bc, ac := sign(a.Compare(b)), sign(b.Compare(a)), sign(b.Compare(c)), sign(a.Compare(c))
		if a.Compare(a) != 0 || ab != -ba {
			t.Errorf("%s: %q and %q compare as %d, and back as %d", s, x, y, ab, ba)
		}
		if s != vercmp.Maven && ab <= 0 && bc <= 0 && (ac > 0 || ac == 0 && ab+bc < 0) {
			t.Errorf("%s: %q, %q, %q are in a ring: %d %d %d", s, x, y, z, ab, bc, ac)
		}
	})
}

// Plain numbers are compared without the library, with the same result. A leading "v" or a trailing
// local part makes a text use the library.
func TestPlainAsFull(t *testing.T) {
	long := map[vercmp.Scheme]func(string) string{
		vercmp.SemVer:   func(s string) string { return "v" + s },
		vercmp.GoTool:   func(s string) string { return "go" + s },
		vercmp.PEP440:   func(s string) string { return "v" + s },
		vercmp.RubyGems: func(s string) string { return " " + s },
		vercmp.Maven:    func(s string) string { return " " + s },
		vercmp.Homebrew: func(s string) string { return s + "_0" },
		vercmp.NVD:      func(s string) string { return "v" + s },
		vercmp.Deb:      func(s string) string { return "0:" + s },
		vercmp.RPM:      func(s string) string { return "0:" + s },
	}
	versions := []string{
		"0", "0.0", "1", "1.0.0", "1.0", "01.2", "1.2", "1.02.0", "1.10", "1.9", "2", "10", "9.9.9",
		"10.0.0", "2024.1.2", "20240102", "99999999999999999999", "100000000000000000000",
	}
	for s, full := range long {
		for _, x := range versions {
			for _, y := range versions {
				short := sign(parse(t, s, x).Compare(parse(t, s, y)))
				mixed := sign(parse(t, s, x).Compare(parse(t, s, full(y))))
				whole := sign(parse(t, s, full(x)).Compare(parse(t, s, full(y))))
				if short != whole || mixed != whole {
					t.Errorf("%s: %s and %s compare as %d, in full as %d, mixed as %d", s, x, y, short, whole, mixed)
				}
			}
		}
	}
}
