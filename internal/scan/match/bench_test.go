package match_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
)

// realDatabase is built once from all feeds in SHARED; DATABASE names an existing one.
func realDatabase(t testing.TB) *vulndb.DB {
	t.Helper()
	path := os.Getenv("DATABASE")
	if path == "" {
		if os.Getenv("SHARED") == "" {
			t.Skip("SHARED is not set: there are no feeds to build a database of")
		}
		inputs, err := filepath.Glob(filepath.Join(os.Getenv("SHARED"), "data", "vuln", "*"))
		if err != nil || len(inputs) == 0 {
			t.Fatalf("there are no feeds in SHARED: %v", err)
		}
		path = filepath.Join(t.TempDir(), "vuln.db")
		if _, err := build.Build(t.Context(), build.Options{Inputs: inputs, Target: path}); err != nil {
			t.Fatal(err)
		}
	}
	db, err := vulndb.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

var kindOf = map[vulndb.Ecosystem]catalog.PackageType{
	vulndb.Go: catalog.Go, vulndb.Crates: catalog.Rust, vulndb.NPM: catalog.NPM, vulndb.Maven: catalog.Java,
	vulndb.PyPI: catalog.Python, vulndb.RubyGems: catalog.Gem, vulndb.Homebrew: catalog.Brew,
	vulndb.Rubies: catalog.Runtime,
}

// mix is the frequency of each kind in a large tree: of a hundred packages.
var mix = strings.Repeat("n", 45) + strings.Repeat("g", 17) + strings.Repeat("p", 11) + strings.Repeat("r", 10) +
	strings.Repeat("j", 7) +
	strings.Repeat("e", 6) + strings.Repeat("b", 3) + "aP"

var letters = map[byte]catalog.PackageType{
	'n': catalog.NPM, 'g': catalog.Go, 'p': catalog.Python, 'r': catalog.Rust, 'j': catalog.Java,
	'e': catalog.Gem, 'b': catalog.Brew, 'a': catalog.MacOSApp, 'P': catalog.Pod,
}

// manyPackages returns n packages of all kinds as in a large tree: one in ten has a name that the
// database knows, each name once, at a version that fixed one vulnerability.
func manyPackages(t testing.TB, db *vulndb.DB, n int) []catalog.Package {
	t.Helper()
	var known []catalog.Package
	seen := map[string]bool{}
	for a, err := range db.AllAdvisories() {
		if err != nil {
			t.Fatal(err)
		}
		if name := string(a.Ecosystem) + a.Name; len(a.Ranges) > 0 && !seen[name] {
			seen[name] = true
			r := a.Ranges[0]
			known = append(known,
				pkg(kindOf[a.Ecosystem], a.Name, cmp.Or(r.Fixed, r.LastAffected, r.Introduced, "1.0.0")))
		}
	}
	brews := []string{
		"openssl@3", "curl", "git", "python@3.12", "vim", "ffmpeg", "node", "imagemagick", "go",
		"postgresql@16",
	}
	var out []catalog.Package
	for i := range n {
		switch {
		case i < len(brews):
			out = append(out, pkg(catalog.Brew, brews[i], "3.1.0"))
		case i == len(brews):
			out = append(out, pkg(catalog.MacOSApp, "Google Chrome", "100.0.1"))
			out[i].BundleIDs = []string{"com.google.Chrome"}
		case i%10 == 0:
			out = append(out, known[i*len(known)/n])
		default:
			out = append(out, pkg(letters[mix[i*37%len(mix)]], "name-"+strconv.Itoa(i*5/7), "1."+strconv.Itoa(i)+".0"))
		}
		out[i].Locations = []string{fmt.Sprintf("/Users/admin/project-%d/lib/%s", i%50, out[i].Name)}
	}
	return out
}

func BenchmarkMatch(b *testing.B) {
	db := realDatabase(b)
	for _, n := range []int{1200, 12000} {
		packages := manyPackages(b, db, n)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			debug.FreeOSMemory() // frees the memory used to create the packages
			memory, before, runs := anonymous(), cpu(), 0
			for b.Loop() {
				runs++
				r, err := match.Match(b.Context(), db, packages, match.Options{})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(r.Findings)), "findings")
				b.ReportMetric(float64(len(r.NotEvaluated)), "unjudged")
			}
			b.ReportMetric(float64((cpu()-before).Microseconds())/1000/float64(runs), "cpu-ms/op")
			b.ReportMetric(anonymous()-memory, "more-anon-MB")
			b.ReportMetric(memory, "anon-before-MB")
		})
	}
	runtime.KeepAlive(db)
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// anonymous returns the anonymous memory of this process in MB, where the system reports it.
func anonymous() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kb, _ := strconv.ParseFloat(fields[0], 64)
	return kb / 1024
}
