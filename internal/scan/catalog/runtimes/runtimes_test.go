package runtimes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
	"github.com/buildyard/buildyard/internal/scan/catalog/dpkg"
)

const (
	pythonHeader = "#define PY_MAJOR_VERSION\t3\n/* Version as a string */\n#define PY_VERSION      \t\"3.11.4\"\n"
	nodeHeader   = "#ifndef SRC_NODE_VERSION_H_\n#define NODE_MAJOR_VERSION 18\n#define NODE_MINOR_VERSION 19\n" +
		"#define NODE_PATCH_VERSION 1\n#define NODE_VERSION_IS_LTS 1\n"
	javaRelease   = "IMPLEMENTOR=\"Eclipse Adoptium\"\nJAVA_VERSION=\"17.0.9\"\nJAVA_VERSION_DATE=\"2023-10-17\"\n"
	oracleRelease = "BUILD_TYPE=\"commercial\"\nJAVA_VERSION=\"1.8.0_361\"\n"
	oldRubyConfig = "raise \"ruby lib version (1.9.3) doesn't match executable version\"\n"
	phpHeader     = "#define PHP_VERSION \"8.2.7\"\n"
	goVersions    = "go1.22.3\ntime 2024-05-01T19:49:47Z\n"
	rubyConfig    = "  RUBY_VERSION.start_with?(\"3.2.\") or\n    raise \"ruby lib version (3.2.2) doesn't match " +
		"executable version\"\n  CONFIG[\"MAJOR\"] = \"3\"\n  CONFIG[\"RUBY_PROGRAM_VERSION\"] = \"3.2.2\"\n"
	perlConfig = "# This file was created by configpm when Perl was built.\npackage Config;\n" +
		"    archname => 'x86_64-linux',\n    version => '5.36.1',\n"
)

// frameworks is a directory of macOS.
const frameworks = "Library/Frameworks/"

var all = []catalog.Extractor{Installations{}}

func TestVersionManagersAndArchives(t *testing.T) {
	catalogtest.Expect(t, all, catalogtest.Files{
		"usr/local/include/python3.11/patchlevel.h":                                   pythonHeader,
		"usr/local/bin/python3.11":                                                    "#!",
		"srv/u/.pyenv/versions/3.11.4/include/python3.11/patchlevel.h":                pythonHeader,
		"srv/u/.pyenv/versions/3.11.4/lib/python3.11/os.py":                           "",
		"srv/u/.nvm/versions/node/v18.19.1/include/node/node_version.h":               nodeHeader,
		"srv/u/.nvm/versions/node/v18.19.1/bin/node":                                  "#!",
		"srv/u/.sdkman/candidates/java/17.0.9-tem/release":                            javaRelease,
		"srv/u/.sdkman/candidates/java/17.0.9-tem/bin/java":                           "#!",
		"opt/oracle/release":                                                          oracleRelease,
		"opt/oracle/bin/java":                                                         "#!",
		"usr/local/go/VERSION":                                                        goVersions,
		"usr/local/go/bin/go":                                                         "#!",
		"srv/u/go/pkg/mod/golang.org/toolchain@v0.0.1-go1.22.3.x/VERSION":             goVersions,
		"srv/u/go/pkg/mod/golang.org/toolchain@v0.0.1-go1.22.3.x/bin/go":              "#!",
		"usr/local/include/php/main/php_version.h":                                    phpHeader,
		"usr/local/sbin/php-fpm":                                                      "#!",
		"srv/u/.rbenv/versions/3.2.2/lib/ruby/3.2.0/x86_64-linux/rbconfig.rb":         rubyConfig,
		"srv/u/perl5/perlbrew/perls/perl-5.36.1/lib/5.36.1/x86_64-linux/Config.pm":    perlConfig,
		"opt/old/lib/ruby/1.9.1/x86_64-linux/rbconfig.rb":                             oldRubyConfig,
		"Library/Java/JavaVirtualMachines/temurin.jdk/Contents/Home/release":          javaRelease,
		"Library/Java/JavaVirtualMachines/temurin.jdk/Contents/Home/bin/java":         "#!",
		frameworks + "Python.framework/Versions/3.11/include/python3.11/patchlevel.h": pythonHeader,
		frameworks + "Python.framework/Versions/3.11/lib/python3.11/os.py":            "",
	},
		"runtime python 3.11.4 /Library/Frameworks/Python.framework/Versions/3.11/include/python3.11/patchlevel.h "+
			"/srv/u/.pyenv/versions/3.11.4/include/python3.11/patchlevel.h /usr/local/include/python3.11/patchlevel.h",
		"runtime node 18.19.1 /srv/u/.nvm/versions/node/v18.19.1/include/node/node_version.h",
		"runtime openjdk 17.0.9 /Library/Java/JavaVirtualMachines/temurin.jdk/Contents/Home/release "+
			"/srv/u/.sdkman/candidates/java/17.0.9-tem/release",
		"runtime oracle-jdk 1.8.0_361 /opt/oracle/release",
		"go toolchain 1.22.3 /srv/u/go/pkg/mod/golang.org/toolchain@v0.0.1-go1.22.3.x/VERSION /usr/local/go/VERSION",
		"runtime php 8.2.7 /usr/local/include/php/main/php_version.h",
		"runtime ruby 3.2.2 /srv/u/.rbenv/versions/3.2.2/lib/ruby/3.2.0/x86_64-linux/rbconfig.rb",
		"runtime ruby 1.9.3 /opt/old/lib/ruby/1.9.1/x86_64-linux/rbconfig.rb",
		"runtime perl 5.36.1 /srv/u/perl5/perlbrew/perls/perl-5.36.1/lib/5.36.1/x86_64-linux/Config.pm",
	)
}

// Headers without their runtime, other files of these names, what belongs to macOS, and tests are not runtimes.
func TestWhatIsNoRuntime(t *testing.T) {
	catalogtest.Expect(t, all, catalogtest.Files{
		"srv/u/.cache/node-gyp/18.19.1/include/node/node_version.h": nodeHeader,
		"opt/sdk/include/python3.11/patchlevel.h":                   pythonHeader,
		"srv/app/VERSION":                     "go1.22.3\n",
		"srv/tool/VERSION":                    "1.2.3\n",
		"srv/tool/bin/go":                     "#!",
		"etc/release":                         "NAME=x\n",
		"srv/cpython/Include/patchlevel.h":    pythonHeader,
		"usr/share/perl5/1.2.3/App/Config.pm": "our %c = (\n  version => '1.2.3',\n);\n",
		"System/" + frameworks + "Ruby.framework/Versions/2.6/usr/lib/ruby/2.6.0/x/rbconfig.rb": rubyConfig,
		"srv/x/testdata/go/VERSION": goVersions,
		"srv/x/testdata/go/bin/go":  "#!",
	})
}

// A header without a version is reported, not skipped.
func TestHeaderWithoutVersion(t *testing.T) {
	catalogtest.Expect(t, all, catalogtest.Files{
		"usr/local/include/node/node_version.h": "#define NODE_MAJOR_VERSION 18\n",
		"usr/local/bin/node":                    "#!",
	}, "! /usr/local/include/node/node_version.h: runtime: it has no version of a runtime: 1 of the three numbers are "+
		"defined")
}

// A runtime that a package of the operating system or a formula installed is that package.
func TestRuntimeOfPackage(t *testing.T) {
	catalogtest.Expect(t, append(all, dpkg.Packages{}), catalogtest.Files{
		"etc/os-release": "ID=debian\nVERSION_ID=12\n",
		"var/lib/dpkg/status": "Package: libnode-dev\nStatus: install ok installed\nArchitecture: amd64\n" +
			"Source: nodejs\nVersion: 18.19.0+dfsg-6~deb12u2\n\n",
		"var/lib/dpkg/info/libnode-dev.list":                        "/usr/include/node/node_version.h\n",
		"usr/include/node/node_version.h":                           nodeHeader,
		"usr/bin/node":                                              "#!",
		"opt/homebrew/Cellar/openjdk/17.0.9/libexec/release":        javaRelease,
		"opt/homebrew/Cellar/openjdk/17.0.9/libexec/bin/java":       "#!",
		"opt/linuxbrew/.linuxbrew/Cellar/go/1.22.3/libexec/VERSION": goVersions,
		"opt/linuxbrew/.linuxbrew/Cellar/go/1.22.3/libexec/bin/go":  "#!",
	}, "deb libnode-dev 18.19.0+dfsg-6~deb12u2 /var/lib/dpkg/status")
}

// The version that the Go distribution of the test has in its file is that of its program.
func TestThisGo(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		t.Fatal(err)
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	data, err := os.ReadFile(filepath.Join(root, "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := readGo(data)
	if want, _, _ := strings.Cut(strings.TrimPrefix(version, "go"), " "); err != nil || p.Version != want {
		t.Errorf("got %q (%v), want %q", p.Version, err, want)
	}
}

var version = regexp.MustCompile(`^[0-9][^\s"]*$`)

func FuzzVersionFiles(f *testing.F) {
	for _, text := range []string{pythonHeader, nodeHeader, javaRelease, goVersions, rubyConfig, perlConfig} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for i := range versionFiles {
			p, err := versionFiles[i].read(data)
			if err == nil && p.Name != "" && !version.MatchString(p.Version) {
				t.Errorf("%s: version %q", versionFiles[i].base, p.Version)
			}
		}
	})
}

// FuzzPaths checks that the patterns of paths agree with the names that they are selected by.
func FuzzPaths(f *testing.F) {
	f.Add("usr/local/include/python3.11/patchlevel.h")
	f.Add("lib/ruby/3.2.0/x/rbconfig.rb")
	f.Fuzz(func(t *testing.T, p string) {
		if form := formOf(p); form != nil && form.base != filepath.Base(p) {
			t.Errorf("%q is taken for %s", p, form.base)
		}
	})
}
