package golang

import (
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

func TestMod(t *testing.T) {
	const mod = "module example.test/mine\n\ngo 1.21\n\nrequire (\n\ta.test/b v1.0.0\n\tc.test/d " +
		"v0.0.0-20240101000000-abcdefabcdef // indirect\n\te.test/f v1.0.0\n\tg.test/h v2.0.0+incompatible\n)\n" +
		"replace e.test/f => ../f\n\nreplace g.test/h v2.0.0+incompatible => fork.test/h v2.0.1\n"
	catalogtest.Expect(t, []catalog.Extractor{ModFiles{}}, catalogtest.Files{
		"src/go.mod":            mod,
		"src/testdata/x/go.mod": mod,
		"src/broken/go.mod":     "module x\nrequire (",
		"Users/x/go/pkg/mod/github.com/!burnt!sushi/toml@v1.6.0/go.mod":     mod,
		"Users/x/go/pkg/mod/github.com/!burnt!sushi/toml@v1.6.0/sub/go.mod": mod,
		"Users/x/go/pkg/mod/cache/download/x.test/y/@v/go.mod":              mod,
	},
		"go a.test/b v1.0.0 /src/go.mod",
		"go c.test/d v0.0.0-20240101000000-abcdefabcdef /src/go.mod",
		"go e.test/f v1.0.0 /src/go.mod (replaced)",
		"go fork.test/h v2.0.1 /src/go.mod",
		"go github.com/BurntSushi/toml v1.6.0 /Users/x/go/pkg/mod/github.com/!burnt!sushi/toml@v1.6.0/go.mod",
		"! /src/broken/go.mod: go/go.mod: go.mod:2:10: syntax error (unterminated block started at go.mod:2:1)",
	)
}

// TestCacheElsewhere: a cache of modules may be in any directory. What a module there requires need not be present. A
// directory of a release, which users name with a version, too, has a project.
func TestCacheElsewhere(t *testing.T) {
	const requires = "\nrequire a.test/b v1.0.0\n"
	catalogtest.Expect(t, []catalog.Extractor{ModFiles{}}, catalogtest.Files{
		"cache/gomod/github.com/!burnt!sushi/toml@v1.6.0/go.mod": "module github.com/BurntSushi/toml" + requires,
		"x/@y/example.test/m/v2@v2.0.0-rc.1/go.mod":              "module example.test/m/v2" + requires,
		"releases/app@v1.2.0/go.mod":                             "module example.test/app" + requires,
		"releases/example.test/app@v2/go.mod":                    "module example.test/app" + requires,
		"releases/example.test/app@latest/go.mod":                "module example.test/app" + requires,
		"myexample.test/app@v1.0.0/go.mod":                       "module yexample.test/app" + requires,
	},
		"go a.test/b v1.0.0 /releases/app@v1.2.0/go.mod /releases/example.test/app@latest/go.mod"+
			" /releases/example.test/app@v2/go.mod",
		"go example.test/m/v2 v2.0.0-rc.1 /x/@y/example.test/m/v2@v2.0.0-rc.1/go.mod",
		"go github.com/BurntSushi/toml v1.6.0 /cache/gomod/github.com/!burnt!sushi/toml@v1.6.0/go.mod",
		// by its path alone, as the cache may be the root of the tree
		"go myexample.test/app v1.0.0 /myexample.test/app@v1.0.0/go.mod",
	)
}

func FuzzMod(f *testing.F) {
	f.Add("module x\nrequire a.test/b v1.0.0\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := catalog.Scan(t.Context(), catalogtest.Tree(catalogtest.Files{"go.mod": text}),
			catalog.Options{Extractors: []catalog.Extractor{ModFiles{}}}); err != nil {
			t.Fatal(err)
		}
	})
}
