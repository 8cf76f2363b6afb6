# Every target is a short line that also works typed by hand.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

TOOLS = $$(scripts/need.sh bin)
# The modules of the SDK, which ./... does not include.
SDK = $(addprefix github.com/buildyard/buildyard/,api/... client/...)
FUZZTIME ?= 10s
WALKS = $(addprefix ./internal/,hv/qemu agent controller cli/buildyard registry store/etcd auth/authstore auth/authfile qcow2 rest/registryrest scan/fs/ext4 scan/watch)
PROPERTIES = $(addprefix ./internal/,agent/cache blob config controller farm layout qcow2 rest/controllerrest scan/watch sched store)
FIRST = $(addprefix ./internal/,hv/qemu agent cli/buildyard scan/watch transfer store/etcd portal controller registry cli/buildnode scan/host)
# What only computes, and synchronizes nothing of ours, is compiled without the race detector: it
# is up to 20 times as fast, and a race on memory that the code of this module touches is still seen.
# A package that guards what it keeps by sync.Once, sync.Map or atomics must not be here, as encoding/json:
# the detector misses their order in it, and reports races that are none.
PLAIN = github.com/klauspost/compress/... go.etcd.io/bbolt/... go.etcd.io/raft/... compress/... crypto/internal/... hash/... math/big/...
RACE = -race $(foreach p,$(PLAIN),-gcflags=$(p)=-race=false)
GUARDING = $(addprefix ./internal/,sched farm store store/etcd blob registry transfer auth rest agent/journal license filter scan/match qcow2 scan/fs/apfs scan/fs/btrfs scan/fs/decmpfs scan/fs/ext4 scan/fs/hfsplus scan/fs/xfs)
GO_FILES = git ls-files -z -co --exclude-standard '*.go' | xargs -0

build: ## build every program into bin/
	stamp=$$(scripts/version.sh ldflags); CGO_ENABLED=0 go build -trimpath -ldflags "-s -w $$stamp" -o bin/ ./cmd/...

dist: ## write the files of a release into dist/, the same bytes in each clone: PLATFORMS=linux/amd64,... for some of them
	scripts/need.sh dist
	go run -trimpath ./internal/tools/dist -nfpm $(TOOLS)/nfpm $(if $(PLATFORMS),-platforms $(PLATFORMS))

# What takes longest is begun first, and more packages than there are processors, as
# many tests wait. Vet is part of lint. Without the paths of this clone in it, what is
# compiled serves the next clone too. A program with the race detector would sleep a
# second at its end, each command of a test's script too.
test: ## run all tests with the race detector; installs what they need; SLOW=1 lists the 20 slowest
	scripts/need.sh test
	RAPID_CHECKS=25 GORACE=atexit_sleep_ms=10 CGO_ENABLED=1 scripts/test.sh "$(FIRST) ./... $(SDK)" $(RACE) -p 6 -trimpath -vet=off -shuffle=on -timeout 20m

# -trimpath as in the tests: what was compiled in another clone need not be again. Without cgo
# as the products, and so that the other modules find what was learned of the first.
lint: ## check style, mistakes and formatting, and that the other systems compile
	scripts/need.sh lint
	CGO_ENABLED=0 GOFLAGS="$${GOFLAGS:-} -trimpath" $(TOOLS)/golangci-lint run
	tools=$(TOOLS); for m in api client test/e2e test/packages/manifests; do (cd $$m && CGO_ENABLED=0 GOFLAGS="$${GOFLAGS:-} -trimpath" $$tools/golangci-lint run) || exit; done
	unformatted=$$($(GO_FILES) $(TOOLS)/gofumpt -l); echo "$$unformatted"; test -z "$$unformatted"
	CGO_ENABLED=0 go test -trimpath ./internal/archtest
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet -trimpath ./... $(SDK)

fmt: ## format all Go files
	scripts/need.sh lint
	$(GO_FILES) $(TOOLS)/gofumpt -w

vuln: ## look for known vulnerabilities in what the programs use (needs the public database)
	scripts/need.sh vuln
	$(TOOLS)/govulncheck ./... $(SDK)

fuzz: ## run every fuzz test for FUZZTIME
	scripts/fuzz.sh $(FUZZTIME)

bench: ## run the benchmarks of the parts whose speed is promised
	go test -run '^$$' -bench . ./internal/sched

bench-vm: ## measure starts, saves and idle guests of real VMs: PAIRS=5, ONLY=row,..., JSON=file, CHECK=1 fails on a missed row
	scripts/need.sh demo
	go run ./test/bench/vm -pairs $(or $(PAIRS),5) $(if $(ONLY),-only $(ONLY)) $(if $(JSON),-json $(JSON)) $(if $(CHECK),-check)

bench-control: ## measure creates, starts, lists, idle nodes and restarts of the control plane: ONLY=row,..., JSON=file, CHECK=1 fails on a missed row
	go run ./test/bench/control $(if $(ONLY),-only $(ONLY)) $(if $(JSON),-json $(JSON)) $(if $(CHECK),-check)

bench-mac: ## measure starts, next tags, commands and ports of Macs over an imitation of tart on XFS, as root: ROUNDS=15, ONLY=row,..., JSON=file, CHECK=1 fails on a missed row
	scripts/need.sh bench-mac
	CGO_ENABLED=0 go run -trimpath ./test/bench/mac -rounds $(or $(ROUNDS),15) $(if $(ONLY),-only $(ONLY)) $(if $(JSON),-json $(JSON)) $(if $(CHECK),-check)

bench-distribution: ## measure starts on nodes without the template, versions that 8 nodes take, and claims of standbys, over limited links, as root: STARTS=3, ONLY=row,..., JSON=file, CHECK=1 fails on a missed row
	scripts/need.sh bench-distribution
	CGO_ENABLED=0 go build -trimpath -o bin/bench-distribution ./test/bench/distribution
	bin/bench-distribution -starts $(or $(STARTS),3) $(if $(ONLY),-only $(ONLY)) $(if $(JSON),-json $(JSON)) $(if $(CHECK),-check)

bench-ha: ## measure three controllers on three etcd members, compared with the embedded store: ONLY=row,..., JSON=file, CHECK=1 fails on a missed row
	scripts/need.sh bench-ha
	CGO_ENABLED=0 go run -trimpath ./test/bench/ha -etcd $(TOOLS)/etcd -versitygw $(TOOLS)/versitygw $(if $(ONLY),-only $(ONLY)) $(if $(JSON),-json $(JSON)) $(if $(CHECK),-check)

bench-registry: ## measure pushes and pulls, and for comparison the disk, the network and another registry: PAIRS=9, ONLY=row,..., JSON=file, CHECK=1 fails on a missed row
	go run ./test/bench/registry -pairs $(or $(PAIRS),9) $(if $(ONLY),-only $(ONLY)) $(if $(JSON),-json $(JSON)) $(if $(CHECK),-check)

bench-scan: ## measure scans of a large tree as directory, disk and template, matching and databases: ROUNDS=5, ONLY=row,..., JSON=file, CHECK=1 fails on a missed row; needs SHARED (../shared)
	scripts/need.sh bench-scan
	go run ./test/bench/scan -scalibr $(TOOLS)/scalibr -shared $(or $(SHARED),../shared) -rounds $(or $(ROUNDS),5) $(if $(ONLY),-only $(ONLY)) $(if $(JSON),-json $(JSON)) $(if $(CHECK),-check)

bench-host: ## measure the host scanner as root: idle, foreign writes, a new package, a storm, a full scan compared with the image scanner: ROUNDS=5, ONLY=row,..., JSON=file, CHECK=1 fails on a missed row; needs SHARED (../shared)
	scripts/need.sh bench-host
	go run ./test/bench/host -shared $(or $(SHARED),../shared) -rounds $(or $(ROUNDS),5) $(if $(ONLY),-only $(ONLY)) $(if $(JSON),-json $(JSON)) $(if $(CHECK),-check)

bench-portal: ## measure pages, refreshes, 20 tabs and the heap of one tab in a real Chromium, of a cloud of 10,000 instances: WATCH=seconds of that tab (600), ONLY=row,..., JSON=file, CHECK=1 fails on a missed row
	scripts/need.sh e2e
	CGO_ENABLED=0 go build -C test/e2e -trimpath -o ../../bin/bench-portal ./bench
	bin/bench-portal $(if $(WATCH),-seconds $(WATCH)) $(if $(ONLY),-only $(ONLY)) $(if $(JSON),-json $(JSON)) $(if $(CHECK),-check)

test-peers: ## compare the packages found in a large tree with those of scalibr and syft (every difference is listed in test/scannercompare/differences.tsv), and the vulnerable functions of Go programs with govulncheck: ONLY=packages or reachable; needs SHARED (../shared)
	scripts/need.sh peers
	go run ./test/scannercompare -scalibr $(TOOLS)/scalibr -syft $(TOOLS)/syft -govulncheck $(TOOLS)/govulncheck -advisories $(or $(SHARED),../shared)/data/vuln/govulndb-osv.tar.zst $(if $(ONLY),-only $(ONLY))

test-real: ## scan systems made of real Debian packages in two versions, and of RPM and apk packages with their histories; truth is from changelogs: ONLY=regexp of cases; as root; needs SHARED (../shared)
	scripts/need.sh real
	go run -trimpath ./test/real -tools $(TOOLS) -shared $(or $(SHARED),../shared) $(if $(ONLY),-only '$(ONLY)')

demo: ## start a controller, a registry and a node with a real guest (ONCE=1 stops after one run, DRIVER=sim without QEMU)
	scripts/demo.sh

test-fault: ## kill real processes while they work: N kills a target (20 % of them for backup, events and qemu-save; registry is killed at every point), SEED repeats a run, JSON=file keeps the figures
	scripts/need.sh test
	go run ./test/fault/faultrun -n $(or $(N),50) $(if $(SEED),-seed $(SEED)) $(if $(JSON),-json $(JSON))

test-ha: ## break each part of a cloud with three controllers, three etcd members and HAProxy in each way while clients work, and try supported etcd versions: N=20 strikes of each fault, ONLY=regexp of cases, SEED, JSON=file; as root
	scripts/need.sh test-ha
	CGO_ENABLED=0 go run -trimpath ./test/ha -tools $(TOOLS) -n $(or $(N),20) $(if $(ONLY),-only '$(ONLY)') $(if $(SEED),-seed $(SEED)) $(if $(JSON),-json $(JSON))

test-hostile: ## attack real services as hostile nodes, pushers, callers, guessers and pages do, on full disks and damaged files, then all together while normal jobs run for MINUTES (15): ONLY=regexp of attacks, JSON=file; as root
	go run ./test/hostile -minutes $(or $(MINUTES),15) $(if $(ONLY),-only '$(ONLY)') $(if $(JSON),-json $(JSON))

test-mac: ## run the whole way of macOS guests over fake Macs, kill -9 every process in every step, and try what goes wrong on a Mac: ONLY=regexp of cases, JSON=file; as root
	scripts/need.sh test-mac
	go run ./test/mac $(if $(ONLY),-only '$(ONLY)') $(if $(JSON),-json $(JSON))

test-upgrade: ## upgrade from the programs of an earlier commit, FROM=commit (6fd311c): data directories, nodes, settings, commands, metrics, scanners, Go packages, running guests: ONLY=regexp of groups
	scripts/need.sh demo
	go run ./test/upgrade $(if $(FROM),-from $(FROM)) $(if $(ONLY),-only '$(ONLY)')

test-packages: ## make the release twice in two clones and compare, install, upgrade and purge the packages in a Debian tree, start what they install, check image, formula, manuals, completions and signatures: ONLY=regexp of cases; as root
	scripts/need.sh test-packages
	go run -trimpath ./test/packages -tools $(TOOLS) $(if $(ONLY),-only '$(ONLY)')

test-s3: ## try the registry on an S3 server (versitygw) with faults, kills, several registries, and compare pulls with a disk: ONLY=regexp of cases, KILLS=40, JSON=file
	scripts/need.sh test-s3
	CGO_ENABLED=0 go run -trimpath ./test/s3 -versitygw $(TOOLS)/versitygw -kills $(or $(KILLS),40) $(if $(ONLY),-only '$(ONLY)') $(if $(JSON),-json $(JSON))

contract: ## hold controller and registry to api/openapi.yaml and the contract, as clients see them: ONLY=regexp of cases, JSON=file, AUTH=1 with the root token, an API key and a certificate
	go run ./test/contract $(if $(ONLY),-only '$(ONLY)') $(if $(JSON),-json $(JSON)) $(if $(AUTH),-auth)

test-rules: ## test the alert rules of Prometheus
	scripts/need.sh rules
	$(TOOLS)/promtool check rules packaging/prometheus/buildyard.rules.yaml
	$(TOOLS)/promtool test rules packaging/prometheus/buildyard.rules.test.yaml

docs-test: ## run every command in README.md, CONTRIBUTING.md and docs/, and check the links of all Markdown files: ONLY=regexp of pages
	scripts/need.sh docs-test
	BUILDYARD_TOOLS=$(TOOLS) go run ./test/docs $(if $(ONLY),-only '$(ONLY)')

openapi-clients: ## make clients of api/openapi.yaml with oapi-codegen and openapi-typescript, compile them, and start and end an instance with one
	scripts/need.sh openapi-clients
	go run ./test/openapi -tools $(TOOLS)

e2e: ## use the portal in a real Chromium and Firefox, light and dark, wide and on a phone: ONLY=flow,..., SHOTS=dir for the screenshots, LOOK="firefox dark 390" for one look
	scripts/need.sh e2e
	CGO_ENABLED=0 go build -C test/e2e -trimpath -o ../../bin/e2e .
	bin/e2e $(if $(ONLY),-only $(ONLY)) $(if $(SHOTS),-shots $(SHOTS)) $(if $(LOOK),-look "$(LOOK)")

auth-matrix: ## ask every route of both services as every kind of caller and compare with the printed tables: ONLY=regexp of arrangements, JSON=file
	go run ./test/authmatrix $(if $(ONLY),-only '$(ONLY)') $(if $(JSON),-json $(JSON))

test-images: ## read ext4, XFS, Btrfs, HFS+ and APFS, in LVM and LUKS, from disks and images of every form, and container images, and compare with other programs: ONLY=regexp of rows, JSON=file; as root; needs SHARED (../shared)
	scripts/need.sh images
	SHARED=$(or $(SHARED),../shared) go run ./test/images $(if $(ONLY),-only '$(ONLY)') $(if $(JSON),-json $(JSON))

e2e-host: ## use the host scanner as its users do, while package managers install 500 packages: ONLY=regexp of test cases, JSON=file; as root; needs SHARED (../shared)
	scripts/need.sh e2e-host
	SHARED=$(or $(SHARED),../shared) go run ./test/e2ehost $(if $(ONLY),-only '$(ONLY)') $(if $(JSON),-json $(JSON))

test-truth: ## hold the matcher to the truth table and to a naive matcher on every advisory; needs SHARED (../shared)
	@test -d "$(or $(SHARED),../shared)/data/vuln" || { echo "test-truth needs SHARED, the directory that contains data/vuln"; exit 1; }
	SHARED="$(abspath $(or $(SHARED),../shared))" EVIDENCE=1 scripts/test.sh ./internal/scan/match/truthtable/... -trimpath -count=1 -timeout 30m

test-full: ## what "make test" leaves out: every step and case of tests that try some by chance there, second passes with real guests, and all operations of a registry concurrently for 60 s
	scripts/need.sh test
	BUILDYARD_TEST_ALL=1 CGO_ENABLED=0 scripts/test.sh "$(WALKS)" -trimpath -vet=off -timeout 60m
	RAPID_CHECKS=1000 CGO_ENABLED=0 scripts/test.sh "$(PROPERTIES)" -trimpath -vet=off -timeout 60m
	REGISTRY_RACE=60s CGO_ENABLED=1 scripts/test.sh ./internal/registry $(RACE) -trimpath -vet=off -run TestConcurrentOperations

test-stress: ## run the 30 tests with the most timing in them (scripts/stress.txt) 200 times each on busy cores: COUNT=times
	scripts/need.sh test
	scripts/stress.sh

test-mutants: ## plant errors in guarding code, one at a time, and print the share that the package's own tests notice: PACKAGES=directories, N=60 a package by SEED, or ALL=1, JSON=file
	scripts/need.sh test
	CGO_ENABLED=0 GOFLAGS="$${GOFLAGS:-} -trimpath" go run ./internal/tools/mutants -n $(or $(N),60) -seed $(or $(SEED),1) $(if $(ALL),-all) $(if $(JSON),-json $(JSON)) $(or $(PACKAGES),$(GUARDING))

clean: ## remove what the targets built
	rm -rf bin dist dist.work

help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: build dist test-packages test test-mutants lint fmt vuln fuzz bench bench-vm bench-control bench-mac bench-distribution bench-registry bench-scan bench-host bench-portal test-peers demo test-fault test-hostile test-mac test-upgrade contract docs-test auth-matrix openapi-clients e2e test-images e2e-host test-full test-stress clean help test-ha test-s3 bench-ha test-real
