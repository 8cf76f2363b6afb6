package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// print prints what the systems are made of.
func (d *debian) print(out io.Writer) {
	two := 0
	for _, c := range d.choices {
		if c.oldest.sourceVersion != c.newest.sourceVersion {
			two++
		}
	}
	fmt.Fprintf(out, "Debian %s: %d packages, %d of %d chosen ones in two versions\n", release,
		len(d.newer.packages), two, len(d.choices))
	if two == 0 {
		fmt.Fprintln(out, "the archive has no package in two versions: nothing differs between its suites now")
	}
	total := 0
	for _, f := range d.fixes {
		total += len(f)
	}
	fmt.Fprintf(out, "advisories: %d sources, %d fixes of vulnerabilities\n", len(d.fixes), total)
	fmt.Fprintf(out, "named by a newer and an older entry, of which the older one counts: %d\n", d.repeated)
	for _, n := range d.notes {
		fmt.Fprintln(out, "without advisories:", n)
	}
}

// feeds are the published forms of advisories about Debian.
var feeds = map[string]struct {
	file  string
	write func(file string, all map[string]fixes) error
}{
	"tracker": {"tracker.json", writeTracker},
	"osv":     {"Debian.zip", writeDebianOSV},
}

// database returns a database of the advisories about Debian in some forms, and of other feeds.
func (s *site) database(ctx context.Context, others []string, forms ...string) (string, error) {
	var files []string
	for _, form := range forms {
		file := filepath.Join(s.dir, feeds[form].file)
		if _, err := os.Stat(file); err != nil {
			if err := feeds[form].write(file, s.debian.fixes); err != nil {
				return "", err
			}
		}
		files = append(files, file)
	}
	name := strings.Join(forms, "-")
	if len(others) > 0 {
		name += "-others"
	}
	if s.databases[name] == "" {
		file, err := s.scanner.build(ctx, name, append(files, others...)...)
		if err != nil {
			return "", err
		}
		s.databases[name] = file
	}
	return s.databases[name], nil
}

// everything returns a database of the tracker, the advisories of the other systems, and the shared data.
func (s *site) everything(ctx context.Context) (string, error) {
	return s.database(ctx, []string{filepath.Join(s.dir, "feeds"), filepath.Join(s.shared, "data", "vuln")}, "tracker")
}

// debianPackages compares the packages of both systems with those that dpkg lists.
func debianPackages(ctx context.Context, s *site) (string, error) {
	counts := make([]int, 0, 2)
	var errs []error
	for _, sys := range []*system{&s.debian.older, &s.debian.newer} {
		report, err := s.scanner.list(ctx, sys.dir)
		if err != nil {
			return "", err
		}
		n, err := sys.listed(report)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", sys.name, err))
		}
		counts = append(counts, n)
	}
	return fmt.Sprintf("%d in the older system, %d in the newer one", counts[0], counts[1]), errors.Join(errs...)
}

// matchDebian returns a case that matches both systems with advisories in some forms.
func matchDebian(forms ...string) func(context.Context, *site) (string, error) {
	return func(ctx context.Context, s *site) (string, error) {
		db, err := s.database(ctx, nil, forms...)
		if err != nil {
			return "", err
		}
		var evidence []string
		var errs []error
		for _, sys := range []*system{&s.debian.older, &s.debian.newer} {
			report, err := s.scanner.match(ctx, db, sys.dir)
			if err != nil {
				return "", err
			}
			r := sys.compare(report)
			if err := r.err(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", sys.name, err))
			}
			evidence = append(evidence, sys.name+": "+r.String())
		}
		return strings.Join(evidence, "; "), errors.Join(errs...)
	}
}

// ownedByDebian matches packages of languages with the advisories of the shared data, which know no distribution.
func ownedByDebian(ctx context.Context, s *site) (string, error) {
	db, err := s.everything(ctx)
	if err != nil {
		return "", err
	}
	var evidence []string
	var errs []error
	for _, sys := range []*system{&s.debian.older, &s.debian.newer} {
		report, err := s.scanner.match(ctx, db, sys.dir)
		if err != nil {
			return "", err
		}
		packages, marked, err := sys.owned(report)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", sys.name, err))
		}
		hidden := report.Coverage.Hidden["owner"]
		if hidden == 0 {
			errs = append(errs, fmt.Errorf("%s: nothing is decided by the distribution", sys.name))
		}
		evidence = append(evidence, fmt.Sprintf("%s: %d left to the distribution, %d of %d packages marked as unknown",
			sys.name, hidden, marked, packages))
	}
	return strings.Join(evidence, "; "), errors.Join(errs...)
}

// measured fails where the archive offers too little for a measurement.
func measured(_ context.Context, s *site) (string, error) {
	packages, found, kernel := set{}, set{}, set{}
	for _, p := range s.debian.older.packages {
		if len(p.affected) == 0 {
			continue
		}
		to := found
		if isKernel(p.source) {
			to = kernel
		} else {
			packages.add(p.name)
		}
		for id := range p.affected {
			to.add(id)
		}
	}
	evidence := fmt.Sprintf("%d packages with %d vulnerabilities between their versions, and %d of the kernel",
		len(packages), len(found), len(kernel))
	if len(packages) < minPackages || len(found) < minVulnerabilities {
		return "", fmt.Errorf("%s: want %d packages and %d vulnerabilities; the archive has changed", evidence,
			minPackages, minVulnerabilities)
	}
	return evidence, nil
}

func isKernel(source string) bool {
	return source == "linux" || strings.HasPrefix(source, "linux-signed")
}
