package rust

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

func TestLock(t *testing.T) {
	const text = "version = 3\n\n[[package]]\nname = \"mine\"\nversion = \"0.1.0\"\n\n[[package]]\nname " +
		"= \"time\"\nversion = \"0.1.42\"\nsource = \"registry+https://example.test\"\nchecksum = \"x\"\n"
	catalogtest.Expect(t, []catalog.Extractor{LockFiles{}}, catalogtest.Files{
		"src/Cargo.lock":  text,
		"src/Cargo.toml":  "[package]\nname = \"mine\"\n",
		"bad/Cargo.lock":  "[[package",
		"deep/Cargo.lock": "x = " + strings.Repeat("[", 4<<20),
		"Users/x/.cargo/registry/src/index.x-6f17/serde-json-core-0.5.1/Cargo.toml": "",
		"Users/x/.cargo/registry/src/index.x-6f17/md-5-0.10.6/Cargo.toml":           "",
		"Users/x/.cargo/registry/src/index.x-6f17/md-5-0.10.6/Cargo.lock":           text,
		"Users/x/.cargo/registry/src/index.x-6f17/md-5-0.10.6/benches/Cargo.toml":   "",
	},
		"rust time 0.1.42 /src/Cargo.lock",
		"rust serde-json-core 0.5.1 /Users/x/.cargo/registry/src/index.x-6f17/serde-json-core-0.5.1/Cargo.toml",
		"rust md-5 0.10.6 /Users/x/.cargo/registry/src/index.x-6f17/md-5-0.10.6/Cargo.toml",
		"! /bad/Cargo.lock: rust/Cargo.lock: toml: line 1: expected '.' or ']' to end table name, but got '\\x00' "+
			"instead",
		"! /deep/Cargo.lock: rust/Cargo.lock: the TOML file is nested more than 64 levels deep",
	)
}

func FuzzLock(f *testing.F) {
	f.Add("[[package]]\nname = \"a\"\nversion = \"1\"\nsource = \"x\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := catalog.Scan(t.Context(), catalogtest.Tree(catalogtest.Files{"Cargo.lock": text}),
			catalog.Options{Extractors: []catalog.Extractor{LockFiles{}}}); err != nil {
			t.Fatal(err)
		}
	})
}
