# An image with heterog and PyTorch: docker build -t heterog .
# The first stage makes the wheels, as scripts/build_wheel.sh does anywhere; the second has what they need.
#   docker build --build-arg WHEELS=--cuda -t heterog-cu13 .     for GPUs: docker run --gpus all
#   docker build --build-arg WHEELS=--shares -t heterog-shares . auto_shares alone; nothing is compiled
FROM debian:12 AS build
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv ca-certificates
COPY . /heterog
WORKDIR /heterog
RUN scripts/setup.sh
ARG WHEELS=""
RUN HETEROG_DIST=/wheels scripts/build_wheel.sh $WHEELS

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv ca-certificates openssh-client \
  && rm -rf /var/lib/apt/lists/*
COPY --from=build /heterog/python/requirements.txt /wheels/*.whl /wheels/
# PyTorch of the pinned version, which the library is built for.
RUN python3 -m venv /opt/heterog \
  && /opt/heterog/bin/pip install --no-cache-dir "$(grep '^torch==' /wheels/requirements.txt)" /wheels/*.whl
ENV PATH=/opt/heterog/bin:$PATH
WORKDIR /work
CMD ["heterog", "--help"]
