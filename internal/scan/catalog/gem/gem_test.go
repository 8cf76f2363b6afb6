package gem

import (
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

var all = []catalog.Extractor{InstalledGems{}, LockFiles{}}

func TestInstalled(t *testing.T) {
	const dir = "Library/Ruby/Gems/2.6.0/specifications/"
	catalogtest.Expect(t, all, catalogtest.Files{
		dir +
			"rack-3.0.0.gemspec": "# -*- encoding: utf-8 -*-\n# stub: rack 3.0.0 ruby lib\n\nGem::Specification.new " +
			"do |s|\n" +
			"  s.name = \"rack\".freeze\n  s.version = \"3.0.0\"\n  s.licenses = [\"MIT\".freeze, 'Ruby']\nend\n",
		dir +
			"CFPropertyList-2.2.8.gemspec": "Gem::Specification.new do |s|\n  s.name = %q{CFPropertyList}\n " +
			" s.version = Gem::Version.new(\"2.2.8\")\n  s.license = 'MIT'\nend\n",
		dir + "default/json-2.6.gemspec": "# stub: json 2.6 ruby lib\n",
		dir +
			"nokogiri-1.13.3-java.gemspec": "# stub: nokogiri 1.13.3 java lib\nGem::Specification.new do |s|\n " +
			" s.name = \"nokogiri\".freeze\n  s.version = \"1.13.3\"\n  s.platform = \"java\".freeze\nend\n",
		dir +
			"psych-4.0.3-java.gemspec": "Gem::Specification.new do |s|\n  s.name = %q{psych}\n  s.version = " +
			"\"4.0.3\"\n  s.platform = %q{java}\nend\n",
		dir + "ffi-1.16.3-x86_64-linux.gemspec": "# stub: ffi 1.16.3 x86_64-linux lib\n",
		dir +
			"odd.gemspec": "Gem::Specification.new do |s|\n  s.name = \"odd\"\n  s.version = \"#{V}\"\nend\n",
		"src/mine/mine.gemspec": "Gem::Specification.new do |s|\n  s.name = \"mine\"\n  s.version " +
			"= \"1.0\"\nend\n",
	},
		"gem rack 3.0.0 /"+dir+"rack-3.0.0.gemspec [MIT, Ruby]",
		"gem CFPropertyList 2.2.8 /"+dir+"CFPropertyList-2.2.8.gemspec [MIT]",
		"gem json 2.6 /"+dir+"default/json-2.6.gemspec",
		"gem nokogiri 1.13.3-java /"+dir+"nokogiri-1.13.3-java.gemspec",
		"gem psych 4.0.3-java /"+dir+"psych-4.0.3-java.gemspec",
		"gem ffi 1.16.3 /"+dir+"ffi-1.16.3-x86_64-linux.gemspec",
		"! /"+dir+"odd.gemspec: gem/gemspec: name or version of the gem is missing",
	)
}

func TestLock(t *testing.T) {
	const text = "PATH\n  remote: .\n  specs:\n    mine (1.0)\n      rack\n\nGIT\n  remote: x\n  revision: abc\n " +
		" specs:\n    puma (6.4.2)\n\n" +
		"GEM\n  remote: https://example.test/\n  specs:\n    rack (3.0.0)\n      webrick (>= 1)\n    nokogiri " +
		"(1.16.0-x86_64-linux)\n    ffi (1.16.3-java)\n    rails (7.1.0.rc1)\n" +
		"    ffi (1.16.3-i686-linux-musl)\n    ffi (1.16.3)\n    ffi (1.16.3-x64-mingw-ucrt)\n    old (1.0-jruby)\n " +
		"   old (1.0-universal-java-11)\n\n" +
		"PLATFORMS\n  ruby\n\nDEPENDENCIES\n  rack\n"
	catalogtest.Expect(t, all, catalogtest.Files{
		"app/Gemfile.lock": text,
		"var/lib/gems/3.1.0/gems/foo-1.0/Gemfile.lock": text,
		"app/gems.locked": "GEM\r\n  specs:\r\n    a (1.0)\r\n",
	},
		"gem a 1.0 /app/gems.locked", "gem puma 6.4.2 /app/Gemfile.lock", "gem rack 3.0.0 /app/Gemfile.lock",
		"gem nokogiri 1.16.0 /app/Gemfile.lock", "gem ffi 1.16.3 /app/Gemfile.lock",
		"gem ffi 1.16.3-java /app/Gemfile.lock", "gem old 1.0-java /app/Gemfile.lock",
		"gem rails 7.1.0.rc1 /app/Gemfile.lock")
}

func FuzzParse(f *testing.F) {
	f.Add("# stub: a 1 ruby lib\n  s.name = %q{x}\n s.licenses = [\"MIT\"]\n")
	f.Fuzz(func(_ *testing.T, spec string) { parseGemspec(spec) })
}
