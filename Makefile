# netsketch: `make demo` shows the whole system at work, `make test` passes the tests. `make help` lists the rest.
SHELL       := /usr/bin/env bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO       ?= go
BIN      := $(CURDIR)/bin
TOOLS    := $(CURDIR)/.cache/bin
PREFIX   ?= /usr/local
SYSCONFDIR ?= /etc
COMMANDS := netsketch netsketch-agent
PLUGINS  := $(notdir $(patsubst %/main.go,%,$(wildcard plugins/*/main.go)))
EXAMPLES := $(patsubst %/go.mod,%,$(wildcard examples/*/go.mod))
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X main.version=$(VERSION)

GOLANGCI_VERSION := v2.12.2
INFLUXD_VERSION  := v1.8.10
NFPM_VERSION := v2.44.1
GOLANGCI := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
INFLUXD  := $(TOOLS)/influxd
INFLUXDB := $(CURDIR)/.cache/influxdb
NFPM     := $(TOOLS)/nfpm-$(NFPM_VERSION)

# golangci-lint's cache holds the paths of the checkout that filled it: another checkout must not read it.
export GOLANGCI_LINT_CACHE ?= $(CURDIR)/.cache/golangci-lint

.PHONY: help
help:
	@awk -F':.*## ' '/^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-21s%s\n", $$1, $$2}' \
	  $(MAKEFILE_LIST)

##@ Every day

.PHONY: build demo test lint generate

# The commands and the tests may use more memory, and take less time.
COMPILE := GOGC=$(or $(GOGC),400) $(GO)
build: ## the commands into bin/, the plugins into bin/plugins/
	@mkdir -p $(BIN)/built $(BIN)/plugins
	$(COMPILE) build -ldflags '$(LDFLAGS)' -o $(BIN)/built/ ./cmd/netsketch $(PLUGINS:%=./plugins/%)
	$(COMPILE) build -ldflags '$(LDFLAGS)' -tags grpcnotrace,nomanpages -o $(BIN)/built/ ./cmd/netsketch-agent
	@for c in $(COMMANDS); do ln -f $(BIN)/built/$$c $(BIN)/$$c; done
	@for p in $(PLUGINS); do ln -f $(BIN)/built/$$p $(BIN)/plugins/netsketch-plugin-$$p; done

demo: build ## an emulated network, the collector and UnivMon, live (DEMO_FLAGS="--epochs 20 --json")
	$(BIN)/netsketch demo $(DEMO_FLAGS)

# A busy machine may need long. vet is a part of lint. The packages with the longest tests come first:
# go test begins packages in their order, and otherwise one of them runs alone at the end. GOGC lets
# the heap of a test grow to five times what it needs; GOMEMLIMIT bounds that.
TESTFLAGS := -timeout 60m -vet=off
LONGEST   := ./lab/scenario ./collector ./lab/findings ./sketch/universal
test: build ## all tests but test-influxdb and test-figures
	@tested=$$($(GO) list -find -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); \
	NETSKETCH_BIN=$(BIN) GOMEMLIMIT=3GiB $(COMPILE) test $(TESTFLAGS) $(LONGEST) $$tested
	@for d in $(EXAMPLES); do (cd $$d && $(COMPILE) test $(TESTFLAGS) ./...) || exit 1; done

lint: $(GOLANGCI) ## static checks, formatting, imports between components, line lengths
	$(GOLANGCI) run --allow-parallel-runners ./...
	cd lab/figures && $(GOLANGCI) run --allow-parallel-runners ./...
	cd lab/questions && $(GOLANGCI) run --allow-parallel-runners ./...
	$(GO) test -vet=off -run TestLineLengths ./docs
	@for d in $(EXAMPLES); do (cd $$d && $(GO) vet ./...) || exit 1; done

generate: ## generated Go code and pages; leaves no diff when it is up to date
	$(GO) generate ./...

##@ Use

.PHONY: install package release archive tutorial example-cluster univmon-isp univmon-hosts \
  lightguardian-faults clean

# What plugins, roles of hosts and tests of P4 programs import, for `netsketch plugin new` and
# `netsketch p4 new`: sources without tests, the includes of P4 programs, and the plugin contract.
MODULE := ./plugins/sdk/... ./yang/table ./settings/... ./sketch/... ./hostagent/... ./p4/p4rt/... ./p4/softswitch/...
SOURCES := {{if and .Module .Module.Main}}{{$$d := .Dir}}{{range .GoFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}{{range .IgnoredGoFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}{{range .SFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}{{end}}
# The pages, the examples, and what they refer to, in the same directories as here.
PAGES := README.md CHANGELOG.md CONTRIBUTING.md docs examples configs yang/modules outputs/all/reference.md \
  lab/scenario/default.yaml

# The manual pages and completions come from a binary of this machine; GOARCH may be another's.
HOST_RUN := env -u GOOS -u GOARCH $(GO) run -ldflags '$(LDFLAGS)'
ROOT := $(DESTDIR)$(PREFIX)
install: build ## commands, plugins, units, manual pages, completions into PREFIX (/usr/local)
	install -D -m 0755 -t $(ROOT)/bin $(COMMANDS:%=$(BIN)/%)
	@for p in $(PLUGINS); do \
	  install -D -m 0755 $(BIN)/plugins/netsketch-plugin-$$p $(ROOT)/lib/netsketch/plugins/netsketch-plugin-$$p; done
	@install -d $(ROOT)/lib/systemd/system $(ROOT)/share/man/man1 $(ROOT)/share/bash-completion/completions \
	  $(ROOT)/share/zsh/site-functions $(ROOT)/share/fish/vendor_completions.d $(DESTDIR)$(SYSCONFDIR)/netsketch
	@for u in configs/systemd/*.service; do \
	  sed 's|/usr/local/|$(PREFIX)/|' $$u >$(ROOT)/lib/systemd/system/$${u##*/}; done
	install -D -m 0644 packaging/netsketch.sysusers $(ROOT)/lib/sysusers.d/netsketch.conf
	@for c in $(COMMANDS); do \
	  SOURCE_DATE_EPOCH=$(DATE) $(HOST_RUN) ./cmd/$$c man $(ROOT)/share/man/man1 && \
	  $(HOST_RUN) ./cmd/$$c completion bash >$(ROOT)/share/bash-completion/completions/$$c && \
	  $(HOST_RUN) ./cmd/$$c completion zsh >$(ROOT)/share/zsh/site-functions/_$$c && \
	  $(HOST_RUN) ./cmd/$$c completion fish >$(ROOT)/share/fish/vendor_completions.d/$$c.fish || exit 1; done
	gzip -9nf $(ROOT)/share/man/man1/netsketch*.1
	install -D -m 0644 -t $(ROOT)/share/doc/netsketch README.md CHANGELOG.md LICENSE
	install -D -m 0644 -t $(ROOT)/share/netsketch/grafana/dashboards configs/grafana/dashboards/*.json
	install -D -m 0644 -t $(ROOT)/share/netsketch/grafana/provisioning/datasources configs/grafana/provisioning/datasources/*
	install -D -m 0644 -t $(ROOT)/share/netsketch/grafana/provisioning/dashboards configs/grafana/provisioning/dashboards/*
	@rm -rf $(ROOT)/share/netsketch/go && mkdir -p $(ROOT)/share/netsketch/go
	@$(GO) list -deps -f '$(SOURCES)' $(MODULE) | sed 's|^$(CURDIR)/||' | sort -u | tar -c -T - go.mod go.sum LICENSE p4/programs/include plugins/sdk/proto | \
	  tar -x --no-same-owner -C $(ROOT)/share/netsketch/go
	@tar -c --exclude='docs/*.go' --exclude='netsketch-plugin-*' --exclude='hostagent-*/hostagent-*' \
	  --exclude=cocosketch/hostagent-cocosketch $(PAGES) | tar -x --no-same-owner -C $(ROOT)/share/netsketch/go
	@for d in docs examples; do ln -sfn ../../netsketch/go/$$d $(ROOT)/share/doc/netsketch/$$d; done
	@mkdir -p $(ROOT)/share/netsketch/p4include
	@ln -sfn ../go/p4/programs/include $(ROOT)/share/netsketch/p4include/netsketch
	@etc=$(DESTDIR)$(SYSCONFDIR)/netsketch; \
	[ -e $$etc/netsketch.yaml ] || sed -e 's|^# configs/netsketch.yaml|# $(SYSCONFDIR)/netsketch/netsketch.yaml|' -e \
	  's|^  directory: .*|  directory: $(PREFIX)/lib/netsketch/plugins\n  state-directory: /var/lib/netsketch/plugins|' \
	  configs/netsketch.yaml >$$etc/netsketch.yaml; \
	[ -e $$etc/agent.yaml ] || install -m 0644 configs/agent.yaml $$etc/agent.yaml

# Files of packages and archives have the date of the commit, no owner, and the order of their names.
DATE := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
DIST := $(CURDIR)/dist
ARCH ?= $(shell $(GO) env GOARCH)
TREE := $(CURDIR)/.cache/package/$(ARCH)
# A version that is no release sorts before all releases.
PACKAGE_VERSION := $(shell echo '$(VERSION)' | sed -E 's/^v([0-9])/\1/; t dots; s/^/0~git$(DATE)./; :dots; s/-/./g')
NAME := netsketch-$(VERSION)-linux-$(ARCH)

# Packages have binaries without C libraries and without the paths of this machine.
package: $(NFPM) ## deb and rpm for ARCH (this machine's), into dist/
	rm -rf $(TREE)
	GOOS=linux GOARCH=$(ARCH) CGO_ENABLED=0 GOFLAGS='$(GOFLAGS) -trimpath' $(MAKE) install \
	  BIN=$(CURDIR)/.cache/package/bin-$(ARCH) PREFIX=/usr SYSCONFDIR=/etc DESTDIR=$(TREE)
	find $(TREE) -exec touch -h -d @$(DATE) {} +
	mkdir -p $(DIST)
	@for p in deb rpm; do SOURCE_DATE_EPOCH=$(DATE) NFPM_ARCH=$(ARCH) NFPM_VERSION='$(PACKAGE_VERSION)' NFPM_TREE=$(TREE) \
	  $(NFPM) package --config packaging/nfpm.yaml --packager $$p --target $(DIST)/$(NAME).$$p || exit 1; done

release: ## archives, packages and SBOMs for amd64 and arm64, with checksums, into dist/
	@case '$(VERSION)' in *-dirty | unknown) echo "release: commit all changes first: the version is $(VERSION)" >&2; exit 1;; esac
	rm -rf $(DIST)
	@for a in amd64 arm64; do $(MAKE) archive ARCH=$$a VERSION='$(VERSION)' DATE=$(DATE) || exit 1; done
	cd $(DIST) && sha256sum netsketch-* >SHA256SUMS

archive: package
	tar --create --sort=name --mtime=@$(DATE) --owner=0 --group=0 --numeric-owner --format=ustar --mode=u+rw,go+r-w \
	  --transform='s|^\./|$(NAME)/|' --directory=$(TREE) ./usr ./etc | gzip -9n >$(DIST)/$(NAME).tar.gz
	SOURCE_DATE_EPOCH=$(DATE) env -u GOOS -u GOARCH $(GO) run ./packaging/sbom -version '$(VERSION)' \
	  $(TREE)/usr/bin/* $(TREE)/usr/lib/netsketch/plugins/* >$(DIST)/$(NAME).cdx.json

tutorial: build $(INFLUXD) ## the steps of docs/tutorial.md, with an InfluxDB of its own (needs curl)
	INFLUXD=$(INFLUXD) .ci/tutorial

example-cluster: build ## three collectors share an emulated fat tree, and one is killed (half a minute)
	examples/cluster/cluster.sh

univmon-isp: build ## scenario: UnivMon on a backbone of 25 switches, against ground truth (half a minute)
	$(BIN)/netsketch demo --scenario examples/univmon/isp.yaml --virtual --json --gnmi 127.0.0.1:0

univmon-hosts: build ## scenario: UnivMon counted by agents on hosts, where switches only forward (seconds)
	$(BIN)/netsketch demo --scenario examples/univmon/hosts.yaml --virtual --json --gnmi 127.0.0.1:0

lightguardian-faults: build ## scenario: faults on 20 switches with LightGuardian's agents on 16 hosts
	for s in faults refined half-dead; do \
	  $(BIN)/netsketch demo --scenario examples/lightguardian/$$s.yaml --virtual --json --gnmi 127.0.0.1:0 || exit 1; done

clean: ## removes what the other targets made
	rm -rf $(BIN) .cache dist

##@ Develop

.PHONY: test-influxdb test-figures test-loaded race bench fuzz p4 bpf console console-check package-check \
  influxd

test-influxdb: $(INFLUXD) ## the output, the dashboards and docs/yang.md's queries, on a real InfluxDB that is built first
	NETSKETCH_REQUIRE_INFLUXD=1 INFLUXD=$(INFLUXD) $(COMPILE) test $(TESTFLAGS) ./outputs/influxdb ./configs/grafana
	NETSKETCH_REQUIRE_INFLUXD=1 INFLUXD=$(INFLUXD) $(COMPILE) test -C lab/questions $(TESTFLAGS) ./...

test-figures: ## the programs that measure and draw docs/figures, and their pages
	cd lab/figures && $(COMPILE) test $(TESTFLAGS) ./...

LOAD ?= 8
RUNS ?= 3
test-loaded: ## all tests RUNS times (3) beside LOAD busy loops (8)
	@for i in $$(seq $(RUNS)); do \
	  GOFLAGS="$(GOFLAGS) -count=1" .ci/load $(LOAD) $(MAKE) test test-influxdb test-figures || exit 1; done

race: build $(INFLUXD) ## all tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 INFLUXD=$(INFLUXD) $(GO) test $(TESTFLAGS) -race ./...
	cd lab/figures && CGO_ENABLED=1 $(GO) test $(TESTFLAGS) -race ./...

bench: build ## speed and latency (some ten minutes)
	$(GO) test -run '^$$' -bench . -benchtime 1s ./...
	$(MAKE) figures FIGURES="sketches --figures speed --runs 5"

# Targets that parse bytes from outside, PACKAGE:FUNCTION; CI runs each for FUZZTIME.
FUZZ     := p4/softswitch/bmv2json:FuzzParse p4/softswitch:FuzzPacket p4/softswitch/p4rtserver:FuzzRequests \
            p4/compiled/conformance:FuzzFrames
FUZZTIME ?= 60s
fuzz: ## the fuzz targets of the switch, FUZZTIME each (60s); FUZZ="PACKAGE:FUNCTION" for another
	@for f in $(FUZZ); do echo "fuzz $$f for $(FUZZTIME)"; \
	  out=$$($(GO) test -C $${f%%:*} -run '^$$' -fuzz "^$${f##*:}$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x 2>&1) && \
	    { tail -n 3 <<<"$$out"; continue; }; \
	  if ! grep -q 'Failing input' <<<"$$out" && grep -q 'context deadline exceeded' <<<"$$out"; then \
	    echo "the time was over in the middle of an input; nothing was found"; continue; fi; \
	  echo "$$out"; exit 1; done

p4: ## P4Info and BMv2 JSON from p4/programs (needs p4c-bm2-ss)
	$(GO) run ./p4/compiled/build

BPF_HEADERS := ../../kernel/bpf/common.h ../../kernel/bpf/packet.h
BPF2GO := GOPACKAGE=kernel $(GO) run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -tags linux \
  -cflags "-O2 -g -mcpu=v3 -Wall -Werror -Wno-unused-function -idirafter /usr/include/$$(uname -m)-linux-gnu"
bpf: ## eBPF objects and Go bindings of the agents (needs clang, llvm-strip, libbpf-dev)
	cd hostagent/omnimon/kernel && $(BPF2GO) \
	  -type control_block -type key -type bucket -type flow_entry -type flow_slot -type counts -type address -type lease \
	  -type began -type probe -type sample -type flowlet \
	  omnimon bpf/omnimon.c && sha256sum bpf/omnimon.c $(BPF_HEADERS) omnimon_bpfel.o omnimon_bpfel.go >digests.txt
	cd hostagent/sketchint/kernel && $(BPF2GO) \
	  -type control_block -type key -type set -type entry -type entry_set -type counts -type flow_id -type heavy_flow -type place \
	  -type inflated_flow -type node_id -type node_counts -type fault_id -type queue_id -type queue_counts \
	  sketchint bpf/sketchint.c && sha256sum bpf/sketchint.c $(BPF_HEADERS) sketchint_bpfel.o sketchint_bpfel.go >digests.txt
	cd hostagent/lightguardian/kernel && $(BPF2GO) \
	  -type control_block -type key -type flow_counts -type counts -type event -type record -type ring \
	  lightguardian bpf/lightguardian.c && sha256sum bpf/lightguardian.c $(BPF_HEADERS) lightguardian_bpfel.o lightguardian_bpfel.go >digests.txt
	cd hostagent/univmon/kernel && $(BPF2GO) \
	  -type control_block -type counts -type divisor -type flow \
	  univmon bpf/univmon.c && sha256sum bpf/univmon.c $(BPF_HEADERS) univmon_bpfel.o univmon_bpfel.go >digests.txt

console: ## the console's pages from outputs/web/console (needs node 20 and npm)
	cd outputs/web/console && npm ci --no-audit --no-fund && npm run build
	cd outputs/web && sha256sum console/*.* console/src/* dist/*.* dist/assets/* >digests.txt

console-check: ## the console in Chromium (needs chromium; a minute)
	$(GO) test $(TESTFLAGS) -tags console -run TestBrowser -count 1 -v ./outputs/web

package-check: package ## installs, checks and removes deb and rpm in a copy of this system (needs root, Debian, rpm)
	packaging/check.sh $(DIST)/$(NAME).deb $(DIST)/$(NAME).rpm

influxd: $(INFLUXD) ## the InfluxDB that the tests run against, built from its module

##@ Evidence

.PHONY: netns netns-harm faults findings evidence questions volume model soak soak-cluster full-disks sustain scale cost \
  figures figures-check chamelemon-healthy chamelemon-figure9 omnimon-failures fuzz-all fuzz-bmv2

netns: build ## agents on real packets in network namespaces, with quick cases of netns-harm (needs root)
	$(GO) build -o $(BIN)/omnimon-netns-check ./examples/omnimon/netns/check
	$(GO) build -o $(BIN)/sketchint-netns-check ./examples/sketchint/netns/check
	$(GO) build -o $(BIN)/lightguardian-netns-check ./examples/lightguardian/netns/check
	examples/omnimon/netns/netns.sh run
	examples/sketchint/netns/netns.sh run
	AGENTS=bridge examples/sketchint/netns/netns.sh run
	env -u BYTES examples/lightguardian/netns/netns.sh run # a smaller transfer ends too early
	$(GO) build -o $(BIN)/netsketch-harm ./lab/harm
	$(BIN)/netsketch-harm -bin $(BIN) -parallel 2 -quick

netns-harm: build ## agents, collectors, switches and paths fail under traffic (needs root; HARM="^killed")
	$(GO) build -o $(BIN)/netsketch-harm ./lab/harm
	$(BIN)/netsketch-harm -bin $(BIN) -parallel 2 -run '$(HARM)'

faults: build $(INFLUXD) ## the fault suite, into docs/evidence/faults.csv unless CI=true (FAULTS="^database" for some)
	NETSKETCH_BIN=$(BIN) NETSKETCH_REQUIRE_INFLUXD=1 INFLUXD=$(INFLUXD) $(GO) test -run TestFaults -count 1 -v -timeout 60m \
	  ./lab/faults $(if $(CI),,-write) -only '$(or $(FAULTS),.)'

evidence: ## what CI leaves out, one after the other, also after a failure (hours)
	$(MAKE) -k model tutorial example-cluster soak soak-cluster full-disks questions volume netns-harm \
	  figures-check fuzz-all sustain scale cost fidelity findings

questions: $(INFLUXD) ## the queries of docs/yang.md about each scenario that ships (QUESTIONS="chamelemon/" for some)
	cd examples/cocosketch && $(MAKE)
	NETSKETCH_REQUIRE_INFLUXD=1 INFLUXD=$(INFLUXD) NETSKETCH_QUESTIONS=$(or $(QUESTIONS),all) $(GO) test -C lab/questions \
	  -run 'OfShippedScenarios|OfDrawnNetworks' -count 1 -v -timeout 180m ./...

VOLUME ?= 7:examples/omnimon/fat-tree.yaml 9:examples/chamelemon/link-loss.yaml 5:lab/scenario/default.yaml \
  7:examples/univmon/hosts.yaml 7:examples/univmon/isp.yaml 5:examples/sketchint/queue.yaml \
  6:examples/lightguardian/faults.yaml
volume: build ## rows, updates, points and time series of an epoch of scenarios (VOLUME="EPOCH:FILE ...")
	NETSKETCH_PLUGINS=$(abspath $(BIN)/plugins) NETSKETCH_VOLUME="$(VOLUME)" \
	  $(GO) test -C lab/questions -run TestVolume -count 1 -v -timeout 60m ./volume

findings: build ## which faults are found, and false alerts, in drawn networks, into docs/evidence/findings.md (hours; FINDINGS="-seeds 2")
	$(GO) build -o $(BIN)/findings ./lab/findings
	$(BIN)/findings -plugins $(BIN)/plugins $(if $(CI),,-write docs/evidence/findings.md) $(FINDINGS)

model: ## ownership in a cluster: the model check with two switches, a cut, a kill and a late view (a minute)
	$(GO) test -run Model -count 1 ./collector/cluster/ownership -args -full

soak: build ## 64 switches, epochs of 1 s for 60 s of wall clock: no epoch lost, memory steady
	NETSKETCH_SOAK=1 $(GO) test -run 'TestSoak64Switches|TestOmniMonManyHosts' -count 1 -v -timeout 10m ./lab/scenario

soak-cluster: build ## three collectors and three NATS servers, killed again and again (minutes; SOAK="-kills 5")
	$(GO) build -o $(BIN)/clustersoak ./lab/clustersoak
	$(BIN)/clustersoak -bin $(BIN) $(SOAK)

full-disks: ## a cluster whose NATS servers have full disks (needs root; a minute)
	NETSKETCH_DISKS=1 $(GO) test -run 'TestFullDisk' -count 1 -v -timeout 20m ./collector

sustain: build ## ChameleMon: 1,240 short epochs on the wall clock, none partial, all exact (SUSTAIN=virtual)
	NETSKETCH_SUSTAIN=$(or $(SUSTAIN),wall) $(GO) test -run TestChameleMonSustained -count 1 -v -timeout 30m ./lab/scenario

scale: ## three collectors with 1,000 simulated switches (SCALE="-switches 10000 -virtual")
	$(GO) run ./lab/scale $(SCALE)

cost: build ## processor time of a collector, UnivMon and eight soft switches (COST="-switches 4")
	$(GO) run ./lab/cost -bin $(BIN) $(COST)

figures: ## charts of docs/figures from their rows; FIGURES="sketches", "attention" or "overtime" measures
	$(GO) build -C lab/figures -o $(BIN)/figures .
	$(BIN)/figures $(or $(FIGURES),draw)

figures-check: ## the figures' long tests, none skipped (many minutes)
	@out=$$(mktemp); trap 'rm -f "$$out"' EXIT; failed=0; \
	for p in $$($(GO) list -C lab/figures ./...); do echo "figures-check: $$p"; \
	  NETSKETCH_FIGURES=1 $(GO) test -C lab/figures -v -count 1 -timeout 120m $$p | tee -a "$$out" || failed=1; done; \
	[ $$failed = 0 ] || exit 1; \
	! grep -e '--- SKIP' "$$out" || { echo "figures-check: these tests did not run; they say above what they need" >&2; exit 1; }

chamelemon-healthy: build ## ChameleMon on workloads of 10,000 to 70,000 flows: all exact (many minutes)
	NETSKETCH_CHAMELEMON=1 $(GO) test -run TestChameleMonWorkloads -count 1 -v -timeout 120m ./lab/scenario

chamelemon-figure9: build ## ChameleMon's Figure 9 on the emulated testbed, into docs/figures (minutes)
	$(MAKE) figures FIGURES=overtime

omnimon-failures: build ## OmniMon on 80 switches and 128 hosts, four kinds of failures, 20 seeds (eight minutes)
	NETSKETCH_EXP9=$(CURDIR)/.cache/omnimon-9.csv $(GO) test -run TestOmniMonExp9 -count 1 -v -timeout 120m ./lab/scenario

omnimon-mutants: ## changes OmniMon's solver and analysis in one place at a time, to find what no test checks (hours; PART=2/5)
	$(GO) run ./internal/test/mutate $(if $(PART),-part $(PART)) \
	  -tests ./plugins/omnimon/linear,./plugins/omnimon/analysis \
	  -known plugins/omnimon/linear/testdata/mutants.txt ./plugins/omnimon/linear
	$(GO) run ./internal/test/mutate $(if $(PART),-part $(PART)) \
	  -known plugins/omnimon/linear/testdata/mutants.txt ./plugins/omnimon/analysis

estimate-mutants: ## the same for MRAC and the other estimators from rows of counters (minutes)
fermat-mutants: ## the same for FermatSketch and its decoder (minutes)
tower-mutants: ## the same for TowerSketch (minutes)
sumax-mutants: ## the same for SuMax (minutes)
universal-mutants: ## the same for UnivMon's sketch and its estimates (hours; PART=2/5 for the second fifth)
estimate-mutants fermat-mutants tower-mutants sumax-mutants universal-mutants: %-mutants:
	$(GO) run ./internal/test/mutate $(if $(PART),-part $(PART)) -tests ./sketch/$*,./sketch \
	  -known sketch/$*/testdata/mutants.txt ./sketch/$*

fidelity: ## every test that docs/evidence/fidelity.md names, none skipped (FIDELITY="^sketch/" for some)
	@grep -o '`[a-z][^`: ]*: \(Test\|Fuzz\)[A-Za-z0-9_]*`' docs/evidence/fidelity.md | tr -d '`' | grep -e '$(or $(FIDELITY),.)' | \
	  sort -u | awk -F': ' '{t[$$1] = t[$$1] "|" $$2} END {for (p in t) print p, substr(t[p], 2)}' | sort | \
	  { failed=0; while read -r package tests; do \
	    in=.; case $$package in lab/figures/*) in=lab/figures; package=$${package#lab/figures/};; esac; \
	    echo "fidelity: $$in/$$package: $$tests"; \
	    out=$$($(GO) test -C $$in -v -count 1 -timeout 60m -run "^($$tests)$$" ./$$package 2>&1) || failed=1; \
	    grep -e '^--- ' <<<"$$out" || true; ! grep -q -e '^--- FAIL' -e '^FAIL' <<<"$$out" || echo "$$out"; \
	    [ $$(grep -c '^--- PASS' <<<"$$out") = $$(tr '|' '\n' <<<"$$tests" | wc -l) ] || \
	      { echo "fidelity: $$in/$$package: a test failed or did not run"; failed=1; }; \
	  done; exit $$failed; }

fuzz-all: ## every fuzz target there is, FUZZTIME each; an hour at 60s
	@$(MAKE) fuzz FUZZ="$$(grep -rn --include='*_test.go' '^func Fuzz' . | grep -v '^./examples/' | \
	  sed -E 's|^\./(.*)/[^/]*_test\.go:[0-9]+:func (Fuzz[A-Za-z0-9]*).*|\1:\2|' | tr '\n' ' ')"

fuzz-bmv2: ## mutated packets through the test programs on both switches (needs BMv2; FUZZ_PACKETS=1000)
	NETSKETCH_FUZZ_PACKETS=$(or $(FUZZ_PACKETS),1000) NETSKETCH_FUZZ_SEED=$(FUZZ_SEED) NETSKETCH_FUZZ_SAMPLES=$(FUZZ_SAMPLES) \
	  $(GO) test -run '^TestFuzzBMv2$$' -count 1 -v -timeout 120m ./lab/parity/switches

# Tools of the targets above

$(GOLANGCI):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(TOOLS)/golangci-lint $@

# Without Flux and Prometheus, which no test queries: half of the packages, half of the time.
$(INFLUXD):
	@mkdir -p $(TOOLS)
	@rm -rf $(INFLUXDB)
	cp -r "$$($(GO) mod download -json github.com/influxdata/influxdb@$(INFLUXD_VERSION) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')" $(INFLUXDB)
	@chmod -R u+w $(INFLUXDB)
	cd $(INFLUXDB) && rm services/httpd/flux.go && \
	  sed -i -f $(CURDIR)/.ci/influxd.sed cmd/influxd/main.go cmd/influxd/run/server.go services/httpd/handler.go
	cd $(INFLUXDB) && $(COMPILE) build -ldflags '-s -w' -tags uint64 -o $@ ./cmd/influxd
	@rm -rf $(INFLUXDB)

$(NFPM):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
	@mv $(TOOLS)/nfpm $@
