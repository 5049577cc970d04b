# Shared by debian/rules of all releases.
include /usr/share/dpkg/pkg-info.mk
export LC_ALL = C.UTF-8
export PYTHONHASHSEED = 0
export PYTHONDONTWRITEBYTECODE = 1

# Write manual pages and completion; the argument is a Python that has knft's dependencies.
define write_documents
	$(1) -m deploy.manual build/manual
	mkdir -p build/completion
	$(1) -m knft completion bash >build/completion/knft
	$(1) -m knft completion zsh >build/completion/_knft
	$(1) -m knft completion fish >build/completion/knft.fish
endef

# prerm and postinst stop and restart the service: with --no-start, debhelper does not stop it when the package is
# removed, and without it, debhelper starts a service that the administrator has stopped.
override_dh_installsystemd:
	dh_installsystemd --no-enable --no-start --no-stop-on-upgrade

# It takes most of the time of a build; tests compare two builds.
override_dh_strip_nondeterminism:
