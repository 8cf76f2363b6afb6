package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// pair are an older and a newer system of packages that were built here.
type pair struct{ older, newer system }

// What each pair has to measure at least.
const (
	minBuiltPackages        = 10
	minBuiltVulnerabilities = 40
)

// makeOthers makes the systems of RPM and of apk.
func (s *site) makeOthers(ctx context.Context) error {
	models, err := s.debian.models(ctx, s.scanner)
	if err != nil {
		return err
	}
	feeds := filepath.Join(s.dir, "feeds")
	if err := os.Mkdir(feeds, 0o755); err != nil {
		return err
	}
	for _, kind := range rpmSystems {
		older, newer, errata, err := makeRPM(ctx, s, kind, models)
		if err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		if err := kind.errata.write(filepath.Join(feeds, kind.name+".zip"), errata); err != nil {
			return err
		}
		s.others[kind.name] = &pair{older, newer}
	}
	older, newer, fixed, err := makeAPK(s, models)
	if err != nil {
		return fmt.Errorf("alpine: %w", err)
	}
	s.others["alpine"] = &pair{older, newer}
	return writeAlpine(filepath.Join(feeds, "alpine.zip"), fixed)
}

// built returns a case that compares both systems of a pair with what their package manager lists, and with the truth.
func built(name string) func(context.Context, *site) (string, error) {
	return func(ctx context.Context, s *site) (string, error) {
		p := s.others[name]
		db, err := s.everything(ctx)
		if err != nil {
			return "", err
		}
		var evidence []string
		var errs []error
		for _, sys := range []*system{&p.older, &p.newer} {
			text, err := s.checkBuilt(ctx, db, sys)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", sys.name, err))
			}
			evidence = append(evidence, sys.name+": "+text)
		}
		packages, found := set{}, set{}
		for _, q := range p.older.packages {
			for id := range q.affected {
				packages.add(q.name)
				found.add(id)
			}
		}
		if len(packages) < minBuiltPackages || len(found) < minBuiltVulnerabilities {
			errs = append(errs, fmt.Errorf("%d packages with %d vulnerabilities between their versions, want %d and %d",
				len(packages), len(found), minBuiltPackages, minBuiltVulnerabilities))
		}
		return strings.Join(evidence, "; "), errors.Join(errs...)
	}
}

func (s *site) checkBuilt(ctx context.Context, db string, sys *system) (string, error) {
	list, err := s.scanner.list(ctx, sys.dir)
	if err != nil {
		return "", err
	}
	n, listErr := sys.listed(list)
	report, err := s.scanner.match(ctx, db, sys.dir)
	if err != nil {
		return "", err
	}
	r := sys.compare(report)
	packages, marked, ownedErr := sys.owned(report)
	return fmt.Sprintf("%d packages, %s; of languages %d left to the distribution, %d of %d packages marked as unknown",
		n, r, report.Coverage.Hidden["owner"], marked, packages), errors.Join(listErr, r.err(), ownedErr)
}
