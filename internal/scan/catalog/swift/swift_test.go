package swift

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

const (
	version1 = `{"object": {"pins": [
		{"package": "swift-nio", "repositoryURL": "https://github.com/apple/swift-nio.git",
		 "state": {"branch": null, "revision": "124119f0bb12384cef35aa041d7c3a686108722d", "version": "2.40.0"}},
		{"package": "Alamofire", "repositoryURL": "git@github.com:Alamofire/Alamofire.git",
		 "state": {"branch": "master", "revision": "8dd85aee02e39dd280c75eef88ffdb86eed4b07b", "version": null}}
	]}, "version": 1}`
	version2 = `{"pins": [
		{"identity": "vapor", "kind": "remoteSourceControl", "location": "https://github.com/vapor/vapor",
		 "state": {"revision": "a", "version": "4.60.2"}},
		{"identity": "mine", "kind": "localSourceControl", "location": "/Users/me/mine",
		 "state": {"branch": "main", "revision": "e5a7ab9acd9d8ea2b16a7e0e3a8e1a4a2bb9e10f"}},
		{"identity": "mona.LinkedList", "kind": "registry", "location": "", "state": {"version": "1.1.1"}}
	], "version": 2}`
	version3 = `{"originHash": "7d2c", "pins": [
		{"identity": "secret", "kind": "remoteSourceControl",
		 "location": "https://robot:pa55word@git.example.test:8443/team/secret.git/",
		 "state": {"revision": "b", "version": "1.0.0-beta.1"}},
		{"identity": "empty", "kind": "remoteSourceControl", "location": "https://github.com/a/empty", "state": {}}
	], "version": 3}`
)

func TestResolvedFiles(t *testing.T) {
	catalogtest.Expect(t, []catalog.Extractor{ResolvedFiles{}}, catalogtest.Files{
		"one/Package.resolved": version1,
		"two/App.xcodeproj/project.xcworkspace/xcshareddata/swiftpm/Package.resolved": version2,
		"three/App.xcworkspace/xcshareddata/swiftpm/Package.resolved":                 version3,
		"none/Package.resolved":                         `{"pins": [], "version": 2}`,
		"odd/Package.resolved":                          `{"version": 4}`,
		"bad/Package.resolved":                          `{"pins": `,
		"one/.build/checkouts/x/Package.resolved":       version1,
		"D/SourcePackages/checkouts/x/Package.resolved": version1,
		"c/Carthage/Checkouts/x/Package.resolved":       version1,
		"app/node_modules/rn/ios/Package.resolved":      version1,
		"many/Package.resolved":                         `{"pins": [` + strings.Repeat("{},", maxObjects) + `{}]}`,
	},
		"swift github.com/apple/swift-nio 2.40.0 /one/Package.resolved",
		"swift github.com/Alamofire/Alamofire 8dd85aee02e39dd280c75eef88ffdb86eed4b07b /one/Package.resolved",
		"swift github.com/vapor/vapor 4.60.2 "+
			"/two/App.xcodeproj/project.xcworkspace/xcshareddata/swiftpm/Package.resolved",
		"swift mine e5a7ab9acd9d8ea2b16a7e0e3a8e1a4a2bb9e10f "+
			"/two/App.xcodeproj/project.xcworkspace/xcshareddata/swiftpm/Package.resolved (replaced)",
		"swift mona.LinkedList 1.1.1 /two/App.xcodeproj/project.xcworkspace/xcshareddata/swiftpm/Package.resolved",
		"swift git.example.test/team/secret 1.0.0-beta.1 "+
			"/three/App.xcworkspace/xcshareddata/swiftpm/Package.resolved",
		"! /odd/Package.resolved: swift/Package.resolved: it has no list of pins",
		"! /bad/Package.resolved: swift/Package.resolved: unexpected end of JSON input",
		"! /many/Package.resolved: swift/Package.resolved: the file is too large: it has 100003 objects and lists "+
			"with 200003 elements, which is too many",
	)
}

func TestRepositoryName(t *testing.T) {
	for address, want := range map[string]string{
		"https://github.com/apple/swift-nio.git":          "github.com/apple/swift-nio",
		"https://GitHub.com/apple/swift-nio/":             "github.com/apple/swift-nio",
		"http://gitlab.example.test/group/sub/name":       "gitlab.example.test/group/sub/name",
		"ssh://git@github.com:22/Alamofire/Alamofire.git": "github.com/Alamofire/Alamofire",
		"git@github.com:Alamofire/Alamofire.git":          "github.com/Alamofire/Alamofire",
		"https://user:pass@github.com/a/b":                "github.com/a/b",
		"https://user:p@ss@github.com/a/b":                "github.com/a/b",
		"https://github.com/a/.git":                       "github.com/a",
		"file:///srv/git/a.git":                           "",
		"/srv/git/a":                                      "",
		"../a":                                            "",
		`C:\a\b`:                                          "",
		"":                                                "",
		"https://github.com/":                             "",
		"https:///a":                                      "",
		"https://github.com/a b/c":                        "",
		"https://github.com/a?token=b":                    "",
		"https://user:pass/word@github.com/a":             "",
		"name":                                            "",
	} {
		if got, ok := RepositoryName(address); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", address, got, ok, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{version1, version2, version3, `{"object": {"pins": null}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if found, err := parseResolved(data); len(found) > maxObjects || err != nil && found != nil {
			t.Errorf("%d packages, %v", len(found), err)
		}
	})
}

// FuzzRepositoryName: a name is the same when it is read as an address again, and has no user.
func FuzzRepositoryName(f *testing.F) {
	f.Add("https://user:pass@github.com:443/apple/swift-nio.git")
	f.Add("git@github.com:apple/swift-nio.git")
	f.Fuzz(func(t *testing.T, address string) {
		name, ok := RepositoryName(address)
		if !ok {
			return
		}
		if again, _ := RepositoryName("https://" + name); strings.ContainsAny(name, "@?# ") ||
			!strings.HasSuffix(name, ".git") && again != name {
			t.Errorf("%q: %q, then %q", address, name, again)
		}
	})
}
