package lockfile

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

var files = catalogtest.Files{
	"yarn/node_modules/x/yarn.lock": "x@1:\n  version \"1.0.0\"\n",
	"yarn/yarn.lock": "# yarn lockfile v1\n\n\n\"@babel/core@^7.0.0\":\n  version \"7.1.0\"\n " +
		" resolved \"https://example.test/a\"\n\nws@^8.0.0, ws@~8.1.0:\n  version \"8.1.0\"\n",
	"pnpm/pnpm-lock.yaml": "lockfileVersion: '9.0'\n\nimporters:\n  .:\n    dependencies:\n      ws:\n " +
		"       specifier: ^8\n        version: 8.2.0\n\npackages:\n  ws@8.2.0:\n    resolution: {integrity: " +
		"sha512-x}\n\nsnapshots:\n  ws@8.2.0: {}\n",
	"bun/bun.lock": `{"lockfileVersion":1,"workspaces":{"":{"name":"m","dependencies":{"ws":"^8"}}},"packages":{"ws":["ws@8.3.0","",{},"sha512-x"],}}`,
	"py/poetry.lock": "[[package]]\nname = \"Jinja2\"\nversion = \"3.1.2\"\ndescription " +
		"= \"\"\noptional = false\npython-versions = \"*\"\nfiles = []\n\n[[package]]\nname = \"pytest\"\nversion " +
		"= \"7.0.0\"\ngroups = [\"dev\"]\noptional = false\nfiles = []\n",
	"py/uv.lock": "version = 1\n\n[[package]]\nname = \"mine\"\nversion = \"0.1.0\"\nsource = " +
		"{ virtual = \".\" }\n\n[[package]]\nname = \"anyio\"\nversion = \"4.3.0\"\nsource = { registry " +
		"= \"https://example.test\" }\n",
	"py/pdm.lock": "[[package]]\nname = \"idna\"\nversion = \"3.6\"\ngroups = " +
		"[\"default\"]\n\n[[package]]\nname = \"mypy\"\nversion = \"1.0\"\ngroups = [\"dev\"]\n",
	"py/Pipfile.lock": `{"default":{"flask":{"version":"==2.0.0"}},"develop":{"black":{"version":"==23.0"}}}`,
	"py/pylock.toml":  "lock-version = \"1.0\"\n\n[[packages]]\nname = \"attrs\"\nversion = \"25.1.0\"\n",
	"py/requirements.txt": "requests==2.31.0 ; python_version > '3'\nflask>=1.0\nunpinned\n-r " +
		"more-requirements.txt\nurllib3===1.26.5 --hash=sha256:00\n",
	"py/more-requirements.txt": "certifi==2023.7.22\n",
	"py/notes.txt":             "requests==1.0\n",
	"gradle/gradle.lockfile": "# " +
		"comment\norg.yaml:snakeyaml:1.33=compileClasspath,runtimeClasspath\nempty=annotationProcessor\n",
	"mvn/pom.xml": `<project><modelVersion>4.0.0</modelVersion><groupId>g</groupId><artifactId>mine</artifactId><version>1.0</version><properties><v>2.13.0</v></properties><dependencies>` +
		`<dependency><groupId>com.x</groupId><artifactId>a</artifactId><version>${v}</version></dependency>` +
		`<dependency><groupId>com.x</groupId><artifactId>t</artifactId><version>1.0</version><scope>test</scope></dependency>` +
		`<dependency><groupId>com.x</groupId><artifactId>u</artifactId><version>${unknown}</version></dependency></dependencies></project>`,
	"mvn/loop/pom.xml": `<project><modelVersion>4.0.0</modelVersion><parent><groupId>g</groupId><artifactId>p</artifactId><version>1</version><relativePath>../loop/pom.xml</relativePath></parent><artifactId>p</artifactId></project>`,
	"bad/uv.lock":      "[[package",
	"deep/uv.lock":     "x = " + strings.Repeat("{a = ", 1<<16),
	"deep/poetry.lock": "x = " + strings.Repeat("[", 4<<20),
	"deep/pdm.lock":    strings.Repeat("a.", 1<<16) + "a = 1",
	"deep/pylock.toml": "[" + strings.Repeat("a.", 1<<16) + "a]",
}

func TestAll(t *testing.T) {
	catalogtest.Expect(t, All(), files,
		"npm @babel/core 7.1.0 /yarn/yarn.lock", "npm ws 8.1.0 /yarn/yarn.lock", "npm ws 8.2.0 /pnpm/pnpm-lock.yaml",
		"npm ws 8.3.0 /bun/bun.lock",
		"python Jinja2 3.1.2 /py/poetry.lock", "python anyio 4.3.0 /py/uv.lock", "python idna 3.6 /py/pdm.lock",
		"python flask 2.0.0 /py/Pipfile.lock",
		"python attrs 25.1.0 /py/pylock.toml", "python requests 2.31.0 /py/requirements.txt",
		"python urllib3 1.26.5 /py/requirements.txt",
		"python certifi 2023.7.22 /py/more-requirements.txt /py/requirements.txt",
		"java org.yaml:snakeyaml 1.33 /gradle/gradle.lockfile", "java com.x:a 2.13.0 /mvn/pom.xml",
		"! /bad/uv.lock: python/uv.lock: could not extract: toml: line 1: expected '.' or ']' to end table name, "+
			"but got '\\x00' instead",
		"! /deep/pdm.lock: python/pdm.lock: the TOML file is nested more than 64 levels deep",
		"! /deep/poetry.lock: python/poetry.lock: the TOML file is nested more than 64 levels deep",
		"! /deep/pylock.toml: python/pylock.toml: the TOML file is nested more than 64 levels deep",
		"! /deep/uv.lock: python/uv.lock: the TOML file is nested more than 64 levels deep",
	)
}

func FuzzAll(f *testing.F) {
	for name, text := range files {
		f.Add(name, text)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		if _, ok := files[name]; !ok {
			return
		}
		if _, err := catalog.Scan(t.Context(), catalogtest.Tree(catalogtest.Files{name: text}),
			catalog.Options{Extractors: All(), Workers: 1}); err != nil {
			t.Fatal(err)
		}
	})
}
