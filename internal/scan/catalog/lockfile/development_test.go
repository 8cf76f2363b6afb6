package lockfile_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
	"github.com/buildyard/buildyard/internal/scan/catalog/extractors"
)

// uvLock has a project with an extra and groups, of which one is for production. The last package has an extra with the
// name of a group, and pytest needs a package that the project needs, too.
const uvLock = `version = 1

[manifest.dependency-groups]
dev = [{ name = "ruff" }]

[[package]]
name = "click"
version = "8.0"
source = { registry = "https://example.test" }

[[package]]
name = "h11"
version = "0.14"

[[package]]
name = "httptools"
version = "0.6"

[[package]]
name = "iniconfig"
version = "2.0"

[[package]]
name = "mine"
version = "0.1"
source = { editable = "." }
dependencies = [
    { name = "uvicorn", extra = ["standard"] },
    { name = "numpy", version = "1.0", marker = "python_version < '3.9'" },
]

[package.optional-dependencies]
fast = [{ name = "numpy" }]
test = [{ name = "pytest" }]

[package.dev-dependencies]
dev = [{ name = "ruff" }, { name = "click" }]
server = [{ name = "zipp", extra = ["test"] }]

[[package]]
name = "numpy"
version = "1.0"

[[package]]
name = "numpy"
version = "2.0"

[[package]]
name = "pytest"
version = "8.0"
dependencies = [{ name = "iniconfig" }, { name = "click" }]

[[package]]
name = "ruff"
version = "0.5"

[[package]]
name = "uvicorn"
version = "0.30"
dependencies = [{ name = "h11" }]

[package.optional-dependencies]
standard = [{ name = "httptools" }]

[[package]]
name = "zipp"
version = "3.0"

[package.optional-dependencies]
test = [{ name = "click" }]
`

// TestDevelopment: packages that lock files name for development alone are left out and counted, unless they are asked
// for. What is installed, or what another lock file needs at run time, is not one of them.
func TestDevelopment(t *testing.T) {
	files := catalogtest.Files{
		"a/package-lock.json": `{"packages": {"node_modules/lodash": {"version": "4.17.20"},
			"node_modules/jest": {"version": "29.0.0", "dev": true},
			"node_modules/mocha": {"version": "10.0.0", "dev": true}}}`,
		"a/node_modules/mocha/package.json": `{"name": "mocha", "version": "10.0.0"}`,
		"old/package-lock.json": `{"dependencies": {"ws": {"version": "1.0.0", "dev": true},
			"jest": {"version": "29.0.0"}}}`,
		"p/Pipfile.lock": `{"default": {"flask": {"version": "==2.0.0"}}, "develop": {"black": {"version": "==23.0"},
			"flask": {"version": "==2.0.0"}}}`,
		"p/poetry.lock": "[[package]]\nname = \"pytest\"\nversion = \"7.0.0\"\ngroups = [\"dev\"]\noptional = false\n",
		"s/poetry.lock": "[[package]]\nname = \"coverage\"\nversion = \"6.0\"\ncategory = \"dev\"\n\n" +
			"[[package]]\nname = \"requests\"\nversion = \"2.20.0\"\ncategory = \"main\"\n",
		"r/pdm.lock": "[[package]]\nname = \"certifi\"\nversion = \"2023.7\"\ngroups = [\"default\", \"dev\"]\n\n" +
			"[[package]]\nname = \"mypy\"\nversion = \"1.0\"\ngroups = [\"lint\", \"dev\"]\n",
		"u/uv.lock":     uvLock,
		"q/poetry.lock": "[[package]]\nname = \"PyTest\"\nversion = \"7.0.0\"\ngroups = [\"test\"]\noptional = false\n",
		"n/pnpm-lock.yaml": "lockfileVersion: '6.0'\n\npackages:\n\n  /ws@8.2.0:\n    dev: false\n\n" +
			"  /tap@16.0.0:\n    dev: true\n",
		"o/pnpm-lock.yaml": `lockfileVersion: '9.0'
importers:
  .:
    dependencies:
      send: {specifier: ^0.18.0, version: 0.18.0(debug@4.3.4)}
      short: {specifier: 'npm:left-pad@^1', version: left-pad@1.3.0}
      mine: {specifier: 'workspace:*', version: 'link:packages/mine'}
    devDependencies:
      tap: {specifier: ^18.0.0, version: 18.0.0}
  packages/mine:
    optionalDependencies:
      fsevents: {specifier: ^2.0.0, version: 2.3.3}
packages:
  send@0.18.0: {resolution: {integrity: x}}
  ms@2.1.3: {resolution: {integrity: x}}
  left-pad@1.3.0: {resolution: {integrity: x}}
  tap@18.0.0: {resolution: {integrity: x}}
  '@tap/run@1.0.0': {resolution: {integrity: x}}
  fsevents@2.3.3: {resolution: {integrity: x}}
snapshots:
  send@0.18.0(debug@4.3.4): {dependencies: {ms: 2.1.3}}
  ms@2.1.3: {}
  left-pad@1.3.0: {}
  tap@18.0.0: {dependencies: {'@tap/run': 1.0.0, ms: 2.1.3}}
  '@tap/run@1.0.0': {dependencies: {tap: 18.0.0}}
  fsevents@2.3.3: {optional: true}
`,
		"j/pom.xml": `<project><modelVersion>4.0.0</modelVersion><groupId>g</groupId><artifactId>m</artifactId>` +
			`<version>1</version><dependencies><dependency><groupId>junit</groupId><artifactId>junit</artifactId>` +
			`<version>4.12</version><scope>test</scope></dependency></dependencies></project>`,
	}
	usual := []string{
		"npm jest 29.0.0 /old/package-lock.json",
		"npm lodash 4.17.20 /a/package-lock.json",
		"npm mocha 10.0.0 /a/node_modules/mocha/package.json",
		"npm fsevents 2.3.3 /o/pnpm-lock.yaml",
		"npm left-pad 1.3.0 /o/pnpm-lock.yaml",
		"npm ms 2.1.3 /o/pnpm-lock.yaml",
		"npm send 0.18.0 /o/pnpm-lock.yaml",
		"npm ws 8.2.0 /n/pnpm-lock.yaml",
		"python flask 2.0.0 /p/Pipfile.lock",
		"python certifi 2023.7 /r/pdm.lock",
		"python click 8.0 /u/uv.lock",
		"python h11 0.14 /u/uv.lock",
		"python httptools 0.6 /u/uv.lock",
		"python mine 0.1 /u/uv.lock",
		"python numpy 1.0 /u/uv.lock",
		"python numpy 2.0 /u/uv.lock",
		"python requests 2.20.0 /s/poetry.lock",
		"python uvicorn 0.30 /u/uv.lock",
		"python zipp 3.0 /u/uv.lock",
	}
	all := []string{
		"java junit:junit 4.12 /j/pom.xml (development)",
		"npm jest 29.0.0 /a/package-lock.json /old/package-lock.json",
		"npm lodash 4.17.20 /a/package-lock.json",
		"npm mocha 10.0.0 /a/node_modules/mocha/package.json /a/package-lock.json",
		"npm tap 16.0.0 /n/pnpm-lock.yaml (development)",
		"npm @tap/run 1.0.0 /o/pnpm-lock.yaml (development)",
		"npm fsevents 2.3.3 /o/pnpm-lock.yaml",
		"npm left-pad 1.3.0 /o/pnpm-lock.yaml",
		"npm ms 2.1.3 /o/pnpm-lock.yaml",
		"npm send 0.18.0 /o/pnpm-lock.yaml",
		"npm tap 18.0.0 /o/pnpm-lock.yaml (development)",
		"npm ws 1.0.0 /old/package-lock.json (development)",
		"npm ws 8.2.0 /n/pnpm-lock.yaml",
		"python PyTest 7.0.0 /p/poetry.lock /q/poetry.lock (development)",
		"python black 23.0 /p/Pipfile.lock (development)",
		"python flask 2.0.0 /p/Pipfile.lock",
		"python certifi 2023.7 /r/pdm.lock",
		"python mypy 1.0 /r/pdm.lock (development)",
		"python coverage 6.0 /s/poetry.lock (development)",
		"python requests 2.20.0 /s/poetry.lock",
		"python click 8.0 /u/uv.lock",
		"python h11 0.14 /u/uv.lock",
		"python httptools 0.6 /u/uv.lock",
		"python iniconfig 2.0 /u/uv.lock (development)",
		"python mine 0.1 /u/uv.lock",
		"python numpy 1.0 /u/uv.lock",
		"python numpy 2.0 /u/uv.lock",
		"python pytest 8.0 /u/uv.lock (development)",
		"python ruff 0.5 /u/uv.lock (development)",
		"python uvicorn 0.30 /u/uv.lock",
		"python zipp 3.0 /u/uv.lock",
	}
	for _, c := range []struct {
		development bool
		want        []string
		leftOut     int
	}{{false, usual, len(all) - len(usual)}, {true, all, 0}} {
		r, err := catalog.Scan(t.Context(), catalogtest.Tree(files),
			catalog.Options{Extractors: extractors.All(), Development: c.development})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(c.want)
		if diff := cmp.Diff(c.want, catalogtest.Lines(r)); diff != "" || r.LeftOut != c.leftOut {
			t.Errorf("%v: %d left out, want %d; want -, got +\n%s", c.development, r.LeftOut, c.leftOut, diff)
		}
	}

	tree := catalogtest.Tree(files)
	for _, development := range []bool{false, true} {
		f := catalog.NewFinder(tree, catalog.Options{Extractors: extractors.All(), Development: development})
		w, ok := f.WantedAt("p/poetry.lock")
		if n := len(f.ReadFile(t.Context(), w).Packages); !ok || (n == 1) != development {
			t.Errorf("a file alone: %v, %d packages", ok, n)
		}
	}
}
