package catalog

import (
	"bytes"
	"io/fs"
	"reflect"
	"testing"
)

func sampleSteps() *Steps {
	s := NewSteps(nil)
	s.root = dirStep{ref: EntryRef{Inode: 2}, reads: []byte{1, 2}, fileCount: 3}
	s.root.files = []*fileStep{
		{
			ref:        EntryRef{Name: "a", Inode: 12, Parent: 2},
			extractors: []byte{0, 4}, reads: []byte{7}, found: []byte("found"),
		},
		{ref: EntryRef{Name: "b", Inode: 13, Parent: 2, Type: fs.ModeSymlink}, extractors: []byte{1}},
	}
	dir := &dirStep{ref: EntryRef{Name: "dir", Inode: 300, Parent: 2, Type: fs.ModeDir}}
	dir.dirs = []*dirStep{
		{ref: EntryRef{Name: "deep", Inode: 301, Parent: 300, Type: fs.ModeDir}, reads: []byte{}, fileCount: 9},
	}
	s.root.dirs = []*dirStep{dir}
	return s
}

func TestStepsCodec(t *testing.T) {
	raw := sampleSteps().Encode()
	got, err := DecodeSteps(nil, raw)
	if err != nil {
		t.Fatal(err)
	}
	if again := got.Encode(); !bytes.Equal(again, raw) {
		t.Errorf("%q, want %q", again, raw)
	}
	if f, want := got.root.files[1].ref, sampleSteps().root.files[1].ref; f != want {
		t.Errorf("%+v, want %+v", f, want)
	}
	if d, want := got.root.dirs[0].dirs[0].ref, sampleSteps().root.dirs[0].dirs[0].ref; d != want {
		t.Errorf("%+v, want %+v", d, want)
	}
	if findStep(got.root.dirs, sampleSteps().root.dirs[0].ref) == nil ||
		findStep(got.root.dirs, EntryRef{Name: "dir", Inode: 4}) != nil {
		t.Error("a directory is found by more or less than its reference")
	}
	for i := range raw {
		if _, err := DecodeSteps(nil, raw[:i]); err == nil {
			t.Errorf("%d of %d bytes are valid", i, len(raw))
		}
	}
	if _, err := DecodeSteps(nil, append(raw, 0)); err == nil {
		t.Error("an additional byte is valid")
	}
}

func TestOutcomeCodec(t *testing.T) {
	const place = "/a/b"
	o := fileOutcome{
		packages: []Package{
			{Kind: NPM, Name: "left-pad", Version: "1.0", Locations: []string{place}, Licenses: []string{"MIT", "BSD"}},
			{Kind: MacOSApp, Name: "App", Version: "2", Locations: []string{"/x", "/y"}, BundleIDs: []string{""}},
			{Kind: Go, Name: "m", Version: "v1", Locations: []string{place}, Replaced: true},
			{Kind: Rust, Name: "d", Version: "1", Locations: []string{place}, Development: true},
			{
				Kind: Java, Name: "g:a", Version: "1", Locations: []string{place + "!/x.jar"},
				Licenses: []string{"\x00l"},
			},
			{
				Kind: Deb, Name: "a", Version: "1:2-3", Locations: []string{place}, Distribution: "debian:12",
				Owner: "deb/b@1", Source: "s", SourceVersion: "4", Arch: "amd64",
			},
		},
		warnings: []Warning{{Path: place, Message: "not JSON", InvalidContent: true}},
	}
	raw := encodeOutcome(o, place)
	if got, ok := decodeOutcome(raw, place); !ok || !reflect.DeepEqual(got, o) {
		t.Errorf("%+v, %v, want %+v", got, ok, o)
	}
	// A directory may be renamed between two scans.
	if got, _ := decodeOutcome(raw, "/c/b"); got.packages[4].Locations[0] != "/c/b!/x.jar" {
		t.Errorf("%+v", got.packages[4])
	}
	if got, ok := decodeOutcome(encodeOutcome(fileOutcome{}, place), place); !ok ||
		!reflect.DeepEqual(got, fileOutcome{}) {
		t.Errorf("%+v, %v", got, ok)
	}
}

func FuzzDecodeSteps(f *testing.F) {
	f.Add(sampleSteps().Encode())
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := DecodeSteps(nil, raw)
		if err != nil {
			return
		}
		if again := s.Encode(); len(again) > len(raw) {
			t.Errorf("%d bytes become %d", len(raw), len(again))
		}
		for _, step := range s.root.files {
			_, _ = decodeOutcome(step.found, "/")
		}
	})
}
