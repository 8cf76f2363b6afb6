package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/buildyard/buildyard/internal/scan"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/reach"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
	"github.com/buildyard/buildyard/test/rig"
)

// goProgram is a program whose functions are compared with the answers of govulncheck.
type goProgram struct {
	name  string
	pkg   string   // that it is built from; "" for one that is there
	env   []string // of its build
	flags []string

	// strippedOf names the program that differs only in its symbols. govulncheck needs them; the answers must be
	// those for that program.
	strippedOf string
}

var (
	linux, windows = []string{"GOOS=linux", "GOARCH=amd64"}, []string{"GOOS=windows", "GOARCH=amd64"}
	darwin         = []string{"GOOS=darwin", "GOARCH=arm64"}
	stripped       = "-ldflags=-s -w"
)

// allVersions names the run with advisories for all versions.
const allVersions = "all-versions"

const testProgram = "./internal/scan/reach/testdata/program"

var goPrograms = []goProgram{
	{name: "buildyard", pkg: "./cmd/buildyard", env: linux},
	{
		name: "buildyard-stripped", pkg: "./cmd/buildyard", env: linux, flags: []string{stripped},
		strippedOf: "buildyard",
	},
	{name: "hostscan-pie", pkg: "./cmd/hostscan", env: linux, flags: []string{"-buildmode=pie"}},
	{
		name: "hostscan-pie-stripped", pkg: "./cmd/hostscan", env: linux, flags: []string{"-buildmode=pie", stripped},
		strippedOf: "hostscan-pie",
	},
	{name: "imagescan-darwin", pkg: "./cmd/imagescan", env: darwin},
	{
		name: "imagescan-darwin-stripped", pkg: "./cmd/imagescan", env: darwin, flags: []string{stripped},
		strippedOf: "imagescan-darwin",
	},
	{name: "program.exe", pkg: testProgram, env: windows},
	{
		name: "program-stripped.exe", pkg: testProgram, env: windows, flags: []string{stripped},
		strippedOf: "program.exe",
	},
	{name: "scalibr"},
	{name: "syft"},
	{name: "govulncheck"},
}

// goFinding identifies an advisory of a module.
type goFinding struct{ module, id string }

// compareReachable compares which advisories have code in real programs. All advisories of Go's vulnerability database
// are used twice: as published, and as if they were about all versions.
func (r *report) compareReachable(ctx context.Context, o options, work string) error {
	programs := filepath.Join(work, "programs")
	if err := buildPrograms(ctx, o, programs); err != nil {
		return err
	}
	for _, all := range []bool{false, true} {
		name := map[bool]string{false: "published", true: allVersions}[all]
		dir := filepath.Join(work, "advisories-"+name)
		records, err := writeAdvisories(o.advisories, dir, all)
		if err != nil {
			return err
		}
		began := time.Now()
		ours, err := reachableOurs(ctx, dir, programs, work)
		if err != nil {
			return err
		}
		fmt.Fprintf(r.out, "%s: %d advisories, all programs in %.1f s\n", name, len(records),
			time.Since(began).Seconds())
		for _, p := range goPrograms {
			if p.strippedOf != "" {
				r.same(name, p, ours)
				continue
			}
			theirs, err := records.reachableTheirs(ctx, o.govulncheck, dir, filepath.Join(programs, p.name))
			if err != nil {
				return fmt.Errorf("govulncheck: %s: %w", p.name, err)
			}
			r.agree(name, p, ours[p.name], theirs, records)
		}
	}
	return nil
}

// buildPrograms puts all programs into a directory.
func buildPrograms(ctx context.Context, o options, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	there := map[string]string{"scalibr": o.scalibr, "syft": o.syft, "govulncheck": o.govulncheck}
	for _, p := range goPrograms {
		to := filepath.Join(dir, p.name)
		if p.pkg == "" {
			data, err := os.ReadFile(there[p.name])
			if err != nil {
				return err
			}
			if err := os.WriteFile(to, data, 0o755); err != nil {
				return err
			}
			continue
		}
		args := append(append([]string{"CGO_ENABLED=0"}, p.env...), "go", "build", "-trimpath", "-o", to)
		if _, err := rig.Output(ctx, "", "env", append(append(args, p.flags...), p.pkg)...); err != nil {
			return err
		}
	}
	return nil
}

// advisory is what is known about a record.
type advisory struct {
	names   []string        // its CVEs, and other names
	hasCode map[string]bool // modules of which it names packages

	modules map[string]string // import path of a package -> its module
}

// advisories are records by their ID.
type advisories map[string]advisory

// sameAs reports whether another record about the vulnerability is among the answers.
func (a advisories) sameAs(key goFinding, of answers) bool {
	for other := range of {
		if other.module == key.module && slices.ContainsFunc(a[other.id].names,
			func(n string) bool { return slices.Contains(a[key.id].names, n) }) {
			return true
		}
	}
	return false
}

// writeAdvisories writes the records of an archive as files, and returns them by ID. Those for all versions have no
// other range.
func writeAdvisories(archive, dir string, all bool) (advisories, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	out := advisories{}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if base := filepath.Base(h.Name); !strings.HasPrefix(base, "GO-") || filepath.Ext(base) != ".json" {
			continue
		}
		text, err := io.ReadAll(in)
		if err != nil {
			return nil, err
		}
		if err := writeAdvisory(out, text, dir, all); err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

func writeAdvisory(out advisories, text []byte, dir string, all bool) error {
	var record map[string]any
	var fields struct {
		ID, Withdrawn string
		Aliases       []string
		Affected      []struct {
			Package  struct{ Name string }
			Specific struct {
				Imports []struct{ Path string }
			} `json:"ecosystem_specific"`
		}
	}
	if err := errors.Join(json.Unmarshal(text, &record), json.Unmarshal(text, &fields)); err != nil {
		return err
	}
	if fields.Withdrawn != "" {
		return nil
	}
	a := advisory{names: fields.Aliases, hasCode: map[string]bool{}, modules: map[string]string{}}
	for _, p := range fields.Affected {
		a.hasCode[p.Package.Name] = a.hasCode[p.Package.Name] || len(p.Specific.Imports) > 0
		for _, i := range p.Specific.Imports {
			a.modules[i.Path] = p.Package.Name
		}
	}
	out[fields.ID] = a
	if affected, ok := record["affected"].([]any); ok && all {
		for _, p := range affected {
			p.(map[string]any)["ranges"] = []any{
				map[string]any{"type": "SEMVER", "events": []any{map[string]any{"introduced": "0"}}},
			}
		}
	}
	b, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fields.ID+".json"), b, 0o600)
}

// answers are the states of advisories in one program.
type answers map[goFinding]match.Reachability

// reachableOurs returns what the scanner reports, by program.
func reachableOurs(ctx context.Context, feed, programs, work string) (map[string]answers, error) {
	target := filepath.Join(work, "vuln.db")
	if _, err := build.Build(ctx, build.Options{Inputs: []string{feed}, Target: target}); err != nil {
		return nil, err
	}
	db, err := vulndb.Open(target)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	out := map[string]answers{}
	source := scan.Source{Type: scan.Dir, Target: programs}
	err = scan.CatalogEach(ctx, source, scan.Options{}, func(inv *scan.Inventory) error {
		res, err := match.Match(ctx, db, inv.Packages, match.Options{})
		if err != nil {
			return err
		}
		unread, err := reach.Resolve(ctx, db, res.Findings, func() (reach.Files, error) { return inv.OpenFiles(ctx) })
		if err == nil && len(unread) > 0 {
			err = fmt.Errorf("not read: %+v", unread)
		}
		if err != nil {
			return err
		}
		for i := range res.Findings {
			f := &res.Findings[i]
			for k, s := range f.Reachable {
				name := strings.TrimPrefix(f.Package.Locations[k], "/")
				if out[name] == nil {
					out[name] = answers{}
				}
				out[name][goFinding{f.Package.Name, f.Advisory}] = s.State
			}
		}
		return nil
	})
	if err == nil && len(out) < len(goPrograms) && filepath.Base(feed) == "advisories-"+allVersions {
		err = fmt.Errorf("only %d of %d programs have findings", len(out), len(goPrograms))
	}
	return out, err
}

// reachableTheirs returns what govulncheck reports about a program. The module that it names for a package is any whose
// path the import path begins with, not always the same; the record has the right one.
func (a advisories) reachableTheirs(ctx context.Context, program, feed, file string) (answers, error) {
	cmd := exec.CommandContext(ctx, program, "-mode=binary", "-format=json", "-db=file://"+feed, file)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, failure.String())
	}
	out := answers{}
	for in := json.NewDecoder(bytes.NewReader(text)); ; {
		var message struct {
			Finding *struct {
				OSV   string
				Trace []struct{ Module, Package, Function string }
			}
		}
		err := in.Decode(&message)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		f := message.Finding
		if f == nil || len(f.Trace) == 0 {
			continue
		}
		state := match.NotLinked
		if f.Trace[0].Function != "" {
			state = match.Linked
		}
		key := goFinding{cmp.Or(a[f.OSV].modules[f.Trace[0].Package], f.Trace[0].Module), f.OSV}
		out[key] = match.MaxReachability(out[key], state)
	}
}

// agree compares the answers for one program. Those on advisories that name no code are no answers of ours.
func (r *report) agree(name string, p goProgram, ours, theirs answers, records advisories) {
	var differ []string
	counts := map[match.Reachability]int{}
	twice := 0
	for _, key := range sortedKeys(ours, theirs) {
		our, their := ours[key], theirs[key]
		named := records[key.id].hasCode[key.module]
		switch {
		case our == match.LinkUnknown && !named, our == match.Linked && their == our:
			counts[our]++
		case our == match.NotLinked && their != match.Linked:
			counts[our]++
		case our == "" && (their == match.NotLinked || !named || records.sameAs(key, ours)):
			twice++ // reported once by the name of the CVE, or not affected on the platform
		default:
			differ = append(differ, fmt.Sprintf("%s %s: ours %q, theirs %q", key.id, key.module, our, their))
		}
	}
	r.verdict("govulncheck "+name+" "+p.name, counts, twice, differ)
}

// same compares the answers for a stripped program with those for the one that was not.
func (r *report) same(name string, p goProgram, ours map[string]answers) {
	var differ []string
	counts := map[match.Reachability]int{}
	for _, key := range sortedKeys(ours[p.name], ours[p.strippedOf]) {
		a, b := ours[p.name][key], ours[p.strippedOf][key]
		counts[a]++
		if a != b {
			differ = append(differ, fmt.Sprintf("%s %s: %q, not stripped %q", key.id, key.module, a, b))
		}
	}
	r.verdict("stripped "+name+" "+p.name, counts, 0, differ)
}

func (r *report) verdict(what string, counts map[match.Reachability]int, twice int, differ []string) {
	word := "ok"
	if len(differ) > 0 {
		word = "DIFFERENT"
		r.failed++
	} else {
		r.passed++
	}
	fmt.Fprintf(r.out, "%-52s linked %4d, not linked %4d, unknown %4d, others %3d, different %3d  %s\n", what,
		counts[match.Linked], counts[match.NotLinked], counts[match.LinkUnknown], twice, len(differ), word)
	for _, d := range differ {
		fmt.Fprintln(r.out, "different", what, d)
	}
}

func sortedKeys(a, b answers) []goFinding {
	all := maps.Clone(a)
	if all == nil {
		all = answers{}
	}
	maps.Copy(all, b)
	return slices.SortedFunc(maps.Keys(all), func(x, y goFinding) int {
		return cmp.Or(cmp.Compare(x.id, y.id), cmp.Compare(x.module, y.module))
	})
}
