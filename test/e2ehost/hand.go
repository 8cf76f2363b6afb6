package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// kegs are unpacked as Homebrew pours bottles: from an archive, and then the receipt is written
// again.
func kegs(ctx context.Context, s *stage, rec *record) error {
	cellar := s.host("opt", "homebrew", "Cellar")
	if err := os.MkdirAll(cellar, 0o755); err != nil {
		return err
	}
	for _, u := range units("brew")[first:] {
		from := s.back("bottles", u.name)
		if err := writeTree(from, u.files()); err != nil {
			return err
		}
		if _, err := s.sh(ctx, from, "tar", "-czf", from+".tar.gz", "-C", "Cellar", u.name); err != nil {
			return err
		}
		if _, err := s.sh(ctx, "", "tar", "-xzf", from+".tar.gz", "-C", cellar); err != nil {
			return err
		}
		receipt := s.host("opt", "homebrew", u.tells())
		if err := write(receipt+".tmp", u.files()[u.tells()]); err != nil {
			return err
		}
		began := time.Now()
		if err := os.Rename(receipt+".tmp", receipt); err != nil {
			return err
		}
		if err := rec.installed("tar and a new receipt", began, u.at(s.host("opt", "homebrew"))); err != nil {
			return err
		}
	}
	return casks(ctx, s, rec)
}

// casks are installed as Homebrew does: unpacked in the Caskroom, the cask recorded, the
// application moved and a link left.
func casks(ctx context.Context, s *stage, rec *record) error {
	for _, u := range []unit{{"macos-app", "Stats", "2.9.12"}, {"macos-app", "Itsycal", "0.15.1"}} {
		token := strings.ToLower(u.name)
		room := s.host("opt", "homebrew", "Caskroom", token)
		app := u.name + ".app"
		if err := writeTree(filepath.Join(room, u.version),
			map[string][]byte{app + "/Contents/Info.plist": u.files()[u.tells()]}); err != nil {
			return err
		}
		noted := filepath.Join(room, ".metadata", u.version, "20240901120000.000", "Casks", token+".json")
		if err := write(noted, fmt.Appendf(nil, "{\"token\":%q,\"version\":%q}\n", token, u.version)); err != nil {
			return err
		}
		began := time.Now()
		if err := os.MkdirAll(s.host("Applications"), 0o755); err != nil {
			return err
		}
		if _, err := s.sh(ctx, "", "mv", filepath.Join(room, u.version, app), s.host("Applications", app)); err != nil {
			return err
		}
		link := filepath.Join(room, u.version, app)
		if err := os.Symlink(s.host("Applications", app), link); err != nil {
			return err
		}
		err := rec.installed("a cask", began, u.at(s.host()), packageFile{"brew", token, u.version, noted},
			packageFile{"brew", token, u.version, link})
		if err != nil {
			return err
		}
	}
	return nil
}

// apps are unpacked: half of them in place, half elsewhere and then moved.
func apps(ctx context.Context, s *stage, rec *record) error {
	for i, u := range units("macos-app")[first:] {
		from := s.back("apps", u.name)
		if err := writeTree(from, u.files()); err != nil {
			return err
		}
		if _, err := s.sh(ctx, from, "zip", "-qr", from+".zip", "Applications"); err != nil {
			return err
		}
		began := time.Time{}
		if i%2 == 0 {
			if _, err := s.sh(ctx, "", "unzip", "-q", from+".zip", "-d", s.host()); err != nil {
				return err
			}
		} else {
			began = time.Now()
			app := "Applications/" + u.name + ".app"
			if _, err := s.sh(ctx, "", "mv", filepath.Join(from, app), s.host(app)); err != nil {
				return err
			}
		}
		if err := rec.installed([]string{"unzip", "mv"}[i%2], began, u.at(s.host())); err != nil {
			return err
		}
	}
	return nil
}

// pods writes the files that CocoaPods leaves of a project.
func pods(_ context.Context, s *stage, rec *record) error {
	return s.pods(rec, units("pod")[first:])
}

func (s *stage) pods(rec *record, list []unit) error {
	var text strings.Builder
	text.WriteString("PODS:\n")
	for _, u := range list {
		fmt.Fprintf(&text, "  - %s (%s)\n", u.name, u.version)
	}
	text.WriteString("\nDEPENDENCIES:\n")
	for _, u := range list {
		fmt.Fprintf(&text, "  - %s\n", u.name)
	}
	text.WriteString("\nCOCOAPODS: 1.15.2\n")
	var came []packageFile
	dir := s.host("srv", "ios")
	for _, name := range []string{"Podfile.lock", "Pods/Manifest.lock"} {
		if err := write(filepath.Join(dir, name), []byte(text.String())); err != nil {
			return err
		}
		for _, u := range list {
			came = append(came, packageFile{"pod", u.name, u.version, filepath.Join(dir, name)})
		}
	}
	rec.replace("pod", dir, came)
	return rec.installed("pod", time.Time{}, came...)
}

// podsChange updates one pod to its next version, and removes one.
func podsChange(_ context.Context, s *stage, rec *record) error {
	list := units("pod")[first:]
	list[0].version = bumped(list[0].version)
	return s.pods(rec, append(list[:1:1], list[2:]...))
}

// fatJars creates archives that contain others, packed and uncompressed, with jar.
func fatJars(ctx context.Context, s *stage, rec *record) error {
	inner := []unit{
		{"java", "org.apache.logging.log4j:log4j-core", "2.14.1"},
		{"java", "org.example:theta-db", "7.0.2"},
		{"java", "org.example:iota-ui", "8.1.0"},
	}
	from := s.back("fat")
	for _, u := range inner {
		if err := writeTree(filepath.Join(from, "BOOT-INF"), u.files()); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(s.host("srv", "java"), 0o755); err != nil {
		return err
	}
	var came []packageFile
	for flags, name := range map[string]string{"cfM": "packed.jar", "c0fM": "stored.war"} {
		file := s.host("srv", "java", name)
		if _, err := s.sh(ctx, from, "jar", flags, file, "BOOT-INF"); err != nil {
			return err
		}
		for _, u := range inner {
			came = append(came, packageFile{u.kind, u.name, u.version, file})
		}
	}
	return rec.installed("jar", time.Time{}, came...)
}
